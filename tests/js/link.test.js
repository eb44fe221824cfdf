// A link is the story: its prompt and masks stand at once, its run is computed, and no other run is ever shown for it.

import assert from "node:assert/strict";
import test from "node:test";
import { readAddress, settingsOf, storyOf, writeAddress } from "../../assets/js/run/address.js";
import { provisional } from "../../assets/js/run/provisional.js";
import { digitsOfTokens, touchesOf } from "../../assets/js/trace/touches.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { open, STORIES } from "./browser.js";

const PROMPT = "Tom found a __ in the garden. He was";
const LANES = [
  { name: "All", compute: { kind: "everything" }, unmask: { kind: "low_confidence" } },
  { name: "Locks", compute: { kind: "age", steps: 3 }, unmask: { kind: "low_confidence" } },
];
const link = (more = {}) =>
  `?${new URLSearchParams({ model: "stories", prompt: PROMPT, gen_length: 16, lanes: JSON.stringify(LANES), ...more })}`;

/** Opens the run that was asked for with these lanes. */
function answer(page) {
  const handle = page.source.asked.at(-1);
  const { lanes } = handle.request;
  const { header, pieces } = structuredClone(STORIES);
  const settings = header.lanes[0].settings;
  const whole = lanes.map((lane) => ({ events: [], parent: null, ...lane, settings }));
  const opened = { header: { ...header, lanes: whole }, pieces };
  handle.send({ run: `run-${page.source.asked.length}`, open: opened, pausable: true });
  return handle;
}

function finish(handle) {
  const { lanes } = handle.request;
  for (const record of STORIES.records.filter(({ lane }) => lane === "surelock"))
    handle.send({ pieces: {}, records: lanes.map(({ id }) => ({ ...record, lane: id })) });
  handle.send({ end: "finished", problem: null });
}

test("the prompt stands word by word, its blanks are masks, and masks follow", () => {
  const { searchParams } = new URL(`http://here/${link()}`);
  const trace = provisional(searchParams.toString(), []);
  assert.equal(trace.pieces.text(trace.header.prompt_tokens.filter((token) => token !== 1)).includes("garden."), true);
  assert.deepEqual([trace.n, trace.given.reduce((sum, x) => sum + x, 0)], [8 + 2 + 16, 8]);
  assert.deepEqual(
    trace.lanes.map(({ name, count }) => [name, count]),
    [
      ["All", 0],
      ["Locks", 0],
    ],
  );
  for (const damaged of ["", "prompt=x&gen_length=abc", "prompt=__&gen_length=0", "lanes=[{}]&prompt=a%20b", "lanes=x"])
    assert.ok(provisional(damaged, LANES).n >= 1, damaged);
});

test("a link is computed at once, under its prompt and masks until the first step, and never another run", async () => {
  const page = await open(link({ tokens: "00000000", weights: STORIES.header.model.weights }), { recorded: STORIES });
  const { stage, source, surelock, find } = page;
  const shown = [];
  surelock.page.follow(["trace"], ({ trace }) => shown.push(trace));
  assert.ok(stage.trace.provisional);
  assert.equal(source.asked.length, 1, "nobody pressed anything");
  assert.ok(surelock.page.now.wanted, "the link's view waits for its run");
  const { request } = source.asked[0];
  assert.deepEqual([request.prompt, request.gen_length, request.link], [PROMPT, 16, true]);
  assert.deepEqual(
    request.lanes.map(({ compute }) => compute.kind),
    ["everything", "age"],
  );
  const handle = answer(page);
  finish(handle);
  await page.pass(400);
  assert.ok(
    shown.every((trace) => trace.provisional || trace === stage.trace),
    "the recorded run was on no frame",
  );
  assert.match(find(".sl-status").textContent, /^The sender’s run ended with other words/);
  assert.equal(surelock.page.now.wanted, null, "the next run has a view of its own");
  const right = digitsOfTokens(stage.trace);
  const again = await open(link({ tokens: right }), { recorded: STORIES });
  finish(answer(again));
  await again.pass(400);
  assert.equal(again.find(".sl-status").textContent, "", "the same tokens need no line");
});

test("a link carries touches: both lanes are computed, and a reload of what it shows finds them again", async () => {
  const touches = { lane: 1, events: [{ step: 3, kind: "write", position: 20, token: 700 }] };
  const page = await open(link({ touches: JSON.stringify(touches) }), { recorded: STORIES });
  const { source, stage, find } = page;
  const { lanes } = source.asked[0].request;
  assert.deepEqual(
    lanes.map(({ name }) => name),
    [lanes[0].name, `${lanes[0].name}, with your word`],
  );
  assert.deepEqual([lanes[0].compute.kind, lanes[1].events, lanes[1].parent], ["age", touches.events, lanes[0].id]);
  finish(answer(page));
  await page.pass(400);
  assert.deepEqual(touchesOf(stage.trace).touches, touches.events);
  const story = storyOf(stage.trace);
  const query = writeAddress(settingsOf(stage.trace), {}, "", story);
  const { settings, story: told } = readAddress(`?${query}`);
  assert.deepEqual([told.touches, told.tokens], [touches, story.tokens]);
  assert.equal(new URLSearchParams(settings).get("prompt"), PROMPT);
  assert.equal(JSON.parse(new URLSearchParams(settings).get("lanes")).length, 2, "the race's lanes go along");
  find(".sl-untouch").click();
  await page.pass(100);
  assert.equal(source.asked.at(-1).request.lanes.length, 2, "back to the race computes it");
});

test("touches that the settings do not allow are told, and it plays without them", async () => {
  const touches = { lane: 0, events: [{ step: 3, kind: "write", position: 0, token: 700 }] };
  const page = await open(link({ touches: JSON.stringify(touches) }), { recorded: STORIES });
  const { source, find } = page;
  source.asked[0].send({ refused: "event at step 3, position 0: it belongs to the prompt." });
  assert.equal(source.asked.length, 2);
  assert.deepEqual(
    source.asked[1].request.lanes.map(({ events }) => events),
    [undefined, undefined],
  );
  answer(page);
  assert.match(find(".sl-status").textContent, /plays without them\. event at step 3, position 0/);
  const damaged = await open(link({ touches: "[1" }), { recorded: STORIES });
  assert.match(damaged.find(".sl-status").textContent, /damaged at touches|Starting/);
  assert.equal(damaged.source.asked[0].request.lanes.length, 2);
});

test("what cannot be computed says why in the place of the grids, and offers the recording", async () => {
  for (const [query, problem] of [
    [link(), "The queue is full."],
    [link({ model: "another" }), "The model “another” is not here"],
  ]) {
    const page = await open(query, { recorded: STORIES });
    const { source, stage, find, surelock } = page;
    source.asked[0]?.send({ refused: problem });
    assert.ok(find(".sl-instead").textContent.startsWith(problem), find(".sl-instead").textContent);
    assert.equal(stage.root.dataset.instead, "true");
    find(".sl-instead button").click();
    assert.deepEqual([stage.trace, stage.root.dataset.instead], [surelock.page.now.recorded, undefined]);
  }
});

test("a link of a run that never was asked for keeps its address as it came", async () => {
  const page = await open(link(), { recorded: STORIES });
  await page.pass(1000);
  assert.equal(page.window.location.search, link());
  assert.equal(new Trace(STORIES).lanes.length, 2);
});
