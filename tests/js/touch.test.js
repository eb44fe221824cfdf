// Touching words: what can be done to a cell, what is asked for, what is shown of it, and every way back.

import assert from "node:assert/strict";
import test from "node:test";
import { changedText } from "../../assets/js/touch/touching.js";
import { LEVELS, otherAt, Wave } from "../../assets/js/touch/wave.js";
import { digitsOf, touchable, touchesOf } from "../../assets/js/trace/touches.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { open, raceOnItsWay, STORIES, settled } from "./browser.js";
import { decoder, pairs, raceOf } from "./small.js";

/** A lane that writes 2 then 3, and the same lane with another word in 2, which writes another one in 3. */
function touched() {
  const event = { step: 0, kind: "write", position: 2, token: 13 };
  const steps = (second) => [{ unmasked: pairs(2, 12) }, { unmasked: pairs(3, second) }, {}];
  const own = decoder("b", "B", { kind: "lock", epsilon: 1 });
  const child = { ...decoder("c", "B, with your word", { kind: "lock", epsilon: 1 }), parent: "b", events: [event] };
  const [, ...later] = steps(14);
  const document = raceOf([
    [own, steps(12)],
    [child, [{ written: pairs(2, 13) }, ...later]],
  ]);
  document.pieces = { ...document.pieces, 12: " cat", 13: " dog", 14: " ran" };
  return Trace.parse(document);
}

test("a written word is replaced before its step, a mask before the next one, and nothing given or repeated is", () => {
  const trace = touched();
  const [lane, other] = trace.lanes;
  const can = (cell, t, of = lane) => touchable(trace, of, cell, t);
  assert.deepEqual([can(2, 1).writes, can(2, 1).seen, can(2, 1).next], [0, 0, 2]);
  assert.deepEqual([can(3, 0).writes, can(3, 0).seen, can(3, 0).masked], [1, 0, true]);
  assert.deepEqual([can(0, 1).writes, can(0, 1).given], [null, true]);
  assert.deepEqual([can(2, 2).writes, can(2, 2).next], [0, null], "after the end a written word can be another one");
  assert.equal(can(2, 1, other).seen, -1, "of a touched word the shares are those before it was written");
  lane.decoder.unmask = { kind: "replay" };
  assert.match(can(2, 1).keeps, /^“B” repeats recorded commits/);
  assert.equal(can(2, 1).writes, null);
});

test("a menu opens beside its cell, also where the grid has scrolled", async () => {
  const { stage, pass } = await open("", { recorded: STORIES });
  const [side] = stage.sides;
  const cell = 40;
  stage.cells.press(side, cell);
  await pass(200);
  const [, y] = side.grid.rect(cell);
  const heights = [0, y - 20].map((scrolled) => {
    Object.defineProperty(side.grid, "top", { value: scrolled, configurable: true });
    const { menu } = stage.touching;
    menu.place();
    return Number(/, (.*)px/.exec(menu.node.style.transform)[1]);
  });
  assert.equal(heights[1], 20, heights.join());
});

test("one sentence counts what a word changed, and where it began", () => {
  const trace = touched();
  const pair = touchesOf(trace);
  assert.equal(changedText(trace, pair, 0), "Your word changed 0 of 1 others.");
  assert.equal(changedText(trace, pair, 1), "Your word changed 1 of 1 others; the first, “ran”, one step later.");
});

test("an outline stands for a second where a cell becomes another, then fades to a thin mark", () => {
  const frames = [];
  globalThis.requestAnimationFrame = (f) => frames.push(f);
  globalThis.matchMedia = () => ({ matches: false });
  const trace = touched();
  const wave = new Wave(touchesOf(trace), () => {});
  assert.deepEqual([...otherAt(wave.pair, 0)], [0, 0, 1, 0]);
  assert.deepEqual([...wave.levels(wave.pair.touched, 0, 0)], [0, 0, LEVELS, 0]);
  assert.equal(frames.length, 1);
  assert.deepEqual([...wave.levels(wave.pair.touched, 1, 900)], [0, 0, LEVELS, LEVELS]);
  assert.deepEqual([...wave.levels(wave.pair.touched, 1, 3000)], [0, 0, 1, 1]);
  assert.deepEqual([...wave.levels(wave.pair.touched, -1, 3100)], [0, 0, 0, 0]);
  assert.equal(digitsOf([1, 2, 3]).length, 8);
  delete globalThis.requestAnimationFrame;
  delete globalThis.matchMedia;
});

const items = (page) => [...page.document.querySelectorAll(".sl-touch [role=menuitem]")];

/** Presses a cell of a lane at a step, and waits for its menu. */
async function press(page, lane, cell) {
  page.stage.cells.press(page.stage.sides[lane], cell);
  await settled();
  await page.pass(20);
}

/** Chooses the likeliest word that does not stand there. */
const choose = (page) =>
  items(page)
    .find((item) => item.matches(".sl-touch-word:not([aria-current])"))
    .click();

const requestOf = ({ source }) => source.asked.at(-1).request;

/** Answers a request for a touched lane with steps of the recorded one. */
function answer(page, run, until) {
  const handle = page.source.asked.at(-1);
  const { lanes } = handle.request;
  const { header, pieces, records } = structuredClone(STORIES);
  handle.send({ run, open: { header: { ...header, lanes }, pieces }, pausable: true });
  const own = records.filter(({ lane, step }) => lane === "surelock" && step < until);
  for (const record of own) handle.send({ pieces: {}, records: lanes.map(({ id }) => ({ ...record, lane: id })) });
  return handle;
}

test("a cell of a recording is pressed, a word chosen: both lanes are computed, shown, undone and left", async () => {
  const page = await open("", { recorded: STORIES });
  const { stage, surelock, find } = page;
  stage.timeline.setRace(false);
  stage.timeline.seek(40);
  const race = stage.trace;
  const lane = race.lane("surelock");
  const [cell] = lane.steps[30].unmasked;
  await press(page, 1, cell);
  const menu = find(".sl-touch");
  assert.equal(menu.getAttribute("role"), "menu");
  assert.equal(page.document.activeElement, items(page)[0], "the focus is in the menu");
  assert.equal(items(page).filter((item) => item.matches(".sl-touch-word")).length, 5);
  find(".sl-touch-box").dispatchEvent(new page.window.KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  assert.equal(find(".sl-touch"), null);
  await press(page, 1, cell);
  choose(page);
  const { lanes, from } = requestOf(page);
  assert.deepEqual([lanes.length, from], [2, undefined], "of a recording both are computed, from the first step");
  assert.deepEqual(lanes[0].id, "surelock");
  const [event] = lanes[1].events;
  assert.deepEqual([event.step, event.kind, event.position], [30, "write", cell]);
  assert.deepEqual([stage.trace.lanes[1].count, surelock.page.now.touches.touched], [30, stage.trace.lanes[1]]);
  assert.equal(stage.sides[0].node.querySelector("h2").textContent, "SureLock, as it was");
  assert.equal(stage.sides[1].node.querySelector("h2").textContent, "SureLock, with your word");
  const handle = answer(page, "first", 128);
  handle.send({ end: "finished", problem: null });
  await page.pass(300);
  assert.match(find(".sl-touched").textContent, /^Your word changed 0 of 127 others\.$/);
  assert.equal(find(".sl-touches").children.length, 1);
  stage.timeline.seek(127);
  await page.pass(60);
  assert.match(find(".sl-verdict").textContent, /work/);
  assert.doesNotMatch(find(".sl-verdict").textContent, /kipping changed|leaves out/, "the word did it");

  stage.timeline.seek(60);
  const [second] = lane.steps[50].unmasked;
  await press(page, 1, second);
  await page.pass(400);
  choose(page);
  const again = requestOf(page);
  assert.deepEqual([again.lanes.length, again.lanes[0].events.length], [1, 2]);
  assert.deepEqual(again.from, { run: "first", lane: lanes[1].id, steps: [50] }, "from a snapshot of the touched run");
  const two = answer(page, "second", 128);
  two.send({ end: "finished", problem: null });
  await page.pass(300);
  assert.equal(find(".sl-touches").children.length, 2);
  find(".sl-undo").click();
  assert.deepEqual(requestOf(page).lanes[0].events, [event]);
  assert.deepEqual(requestOf(page).from.steps, [50]);
  answer(page, "third", 60);
  await page.pass(60);
  find(".sl-untouch").click();
  await page.pass(60);
  assert.deepEqual([stage.trace, surelock.page.now.touches, find(".sl-touched-box").hidden], [race, null, true]);
  assert.equal(surelock.page.now.phase, "idle");
});

test("a word that was typed is written when its token comes, but not once its menu is closed", async () => {
  const page = await open("", { recorded: STORIES });
  const { stage, source, find } = page;
  stage.timeline.setRace(false);
  stage.timeline.seek(40);
  const [cell] = stage.trace.lane("surelock").steps[30].unmasked;
  const type = async () => {
    const asked = {};
    source.token = () => new Promise((then) => Object.assign(asked, { then }));
    await press(page, 1, cell);
    items(page)
      .find(({ textContent }) => textContent.startsWith("another word"))
      .click();
    find(".sl-touch-form input").value = "fox";
    find(".sl-touch-form button").click();
    return () => asked.then({ id: 12, piece: "=a" });
  };
  const late = await type();
  find(".sl-touch-close").click();
  late();
  await page.pass(50);
  assert.equal(source.asked.length, 0);
  const inTime = await type();
  inTime();
  await page.pass(50);
  assert.equal(requestOf(page).lanes[1].events[0].token, 12);
});

/** A page whose race on its way has told 40 steps: {page, race, cell}; cell: one that the second lane wrote in step 20. */
async function racing() {
  const page = await open("", { recorded: STORIES });
  const race = raceOnItsWay(page);
  race.tell(0, 40);
  page.stage.timeline.setRace(false);
  const [cell] = page.stage.trace.lanes[1].steps[20].unmasked;
  return { page, race, cell };
}

test("a race on its way rests while a word is touched, and goes on when one goes back to it", async () => {
  const { page, race, cell } = await racing();
  const { stage, surelock, find, source } = page;
  const { trace } = stage;
  await press(page, 1, cell);
  assert.equal(surelock.page.now.phase, "running", "only the display rests while the menu is open");
  assert.equal(stage.timeline.follow, false);
  await page.pass(400);
  choose(page);
  assert.deepEqual(race.calls, ["pause"]);
  const { lanes, from } = requestOf(page);
  assert.deepEqual(
    [lanes.length, from],
    [2, { run: "race", lane: "surelock", steps: [40, 20] }],
    "it goes on beside it",
  );
  race.tell(40, 41);
  assert.equal(trace.count, 41, "what was on its way is not lost");
  find(".sl-untouch").click();
  await page.pass(20);
  assert.equal(source.asked.at(-1).calls.at(-1), "leave");
  assert.deepEqual([stage.trace, surelock.page.now.phase, race.calls], [trace, "running", ["pause", "resume"]]);
  race.tell(41, 42);
  assert.equal(trace.count, 42);
});

test("a race that a visitor has paused stays paused when one goes back to it", async () => {
  const { page, race, cell } = await racing();
  const { surelock, find, live } = page;
  live.pause();
  for (const { then } of race.answers.splice(0)) then();
  await press(page, 1, cell);
  await page.pass(400);
  choose(page);
  find(".sl-untouch").click();
  await page.pass(20);
  assert.deepEqual([surelock.page.now.phase, race.calls.includes("resume")], ["paused", false]);
});

test("nine touches are refused, and what is refused leads back", async () => {
  const page = await open("", { recorded: STORIES });
  await page.stage.parts.touching.use();
  const { stage, surelock, source, find } = page;
  const starting = stage.touching.runs;
  stage.timeline.setRace(false);
  const race = stage.trace;
  const lane = race.lane("surelock");
  for (let i = 0; i < 8; i++) {
    const at = stage.trace.lanes.at(-1);
    const event = { step: 10 + i, kind: "write", position: lane.steps[10 + i].unmasked[0], token: 700 };
    assert.equal(starting.touch(i ? at : lane, event), "");
    answer(page, `run-${i}`, 128).send({ end: "finished", problem: null });
    await page.pass(20);
  }
  const event = { step: 30, kind: "write", position: lane.steps[30].unmasked[0], token: 700 };
  assert.match(starting.touch(stage.trace.lanes[1], event), /at most 8 touches/);
  assert.equal(starting.touch(stage.trace.lanes[0], event), "", "the left grid begins a new list");
  const before = stage.trace;
  source.asked.at(-1).send({ refused: "Not so." });
  assert.equal(find(".sl-status").textContent, "Not so.");
  assert.notEqual(stage.trace, before);
  assert.equal(surelock.page.now.touches.touches.length, 8, "the touches before it are on show");
});

test("a reload finds the touched run again, with its list, its link and its way back", async () => {
  const page = await open("", { recorded: STORIES });
  await page.stage.parts.touching.use();
  const lane = page.stage.trace.lane("surelock");
  const event = { step: 30, kind: "write", position: lane.steps[30].unmasked[0], token: 700 };
  page.stage.touching.runs.touch(lane, event);
  answer(page, "first", 128).send({ end: "finished", problem: null });
  await page.pass(400);
  page.surelock.addressing.write();
  const { search } = page.window.location;
  assert.match(search, /touches=/);
  const keep = Array.from({ length: page.window.sessionStorage.length }, (_, i) => page.window.sessionStorage.key(i));
  const kept = keep.map((name) => [name, page.window.sessionStorage.getItem(name)]);
  const again = await open(search, { recorded: STORIES, keep: kept });
  await again.pass(400);
  assert.equal(again.source.asked.length, 0, "nothing is computed");
  assert.deepEqual(again.surelock.page.now.touches.touches, [event]);
  assert.equal(again.find(".sl-touches").children.length, 1);
  again.surelock.addressing.write();
  assert.equal(again.window.location.search, search);
  again.find(".sl-untouch").click();
  assert.equal(again.stage.trace, again.surelock.page.now.recorded);
});

test("a race that rested for a menu goes on when it is closed, also after what was chosen there is refused", async () => {
  const page = await open("", { recorded: STORIES });
  await page.stage.parts.touching.use();
  const { stage, find } = page;
  const { timeline } = stage;
  timeline.setRace(false);
  timeline.seek(40);
  timeline.play();
  stage.touching.runs.touch = () => "Not now.";
  await press(page, 1, stage.trace.lane("surelock").steps[30].unmasked[0]);
  assert.equal(timeline.playing, false);
  choose(page);
  assert.match(find(".sl-touch-said").textContent, /Not now/);
  assert.equal(timeline.playing, false);
  find(".sl-touch-close").click();
  assert.equal(timeline.playing, true);
});
