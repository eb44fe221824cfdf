// The page under random sequences of presses, answers and views. A small model says what phase the run on its way is in; and
// whatever happened, all that can be seen is of the cursor's step.

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { readAddress, settingsOf, storyOf, writeAddress } from "../../assets/js/run/address.js";
import { isOver, narrate } from "../../assets/js/stage/narrator.js";
import { cellText, gridName } from "../../assets/js/stage/spoken.js";
import { chapters } from "../../assets/js/trace/chapters.js";
import { prose } from "../../assets/js/trace/prose.js";
import { open } from "./browser.js";
import { FORM } from "./described.js";
import { chosenMove, decoder, numbers, RANDOM, raceOf } from "./small.js";

const [N, PROMPT, STEPS] = [24, 4, 10];
const range = (length) => Array.from({ length }, (_, i) => i);

/** A run of two lanes of other clocks, the slower one in fewer steps, which holds no likely words. */
function liveRun() {
  const writes = (t, shift, first) => {
    const size = (step) => (step < first ? 4 : 2);
    const from = range(t).reduce((sum, step) => sum + size(step), PROMPT);
    return { unmasked: range(size(t)).map((i) => [from + i, i % 2 ? 12 : 10 + ((t + shift) % 4)]) };
  };
  const side = (id, name, compute, seconds, { locks = 0, first = 0 }) => [
    decoder(id, name, compute, { settings: { gen_length: N - PROMPT } }),
    range(STEPS - first).map((t) => ({
      ...writes(t, locks, first),
      locked: locks ? [t] : [],
      seconds: seconds(t),
    })),
  ];
  const sides = [
    side("a", "All", { kind: "everything" }, (t) => 0.5 + 0.01 * t, { first: 2 }),
    side("b", "Locks", { kind: "lock", epsilon: 0.01, percentile: 20 }, (t) => 0.2 + 0.02 * t, { locks: 1 }),
  ];
  const made = raceOf(sides, {
    length: N,
    prompt: [10, 11, 10, 11],
    pieces: { 10: " cat", 11: " sat", 12: "s", 13: " on" },
  });
  made.header.model.name = "stories";
  return made;
}

const RUN = liveRun();

/** What a step of a lane that a request asks for tells: what its parent's does, but for words that are written by hand. */
function recordOf({ id, parent, events = [] }, step) {
  const root = parent ?? id;
  const record = RUN.records.find((each) => each.lane === root && each.step === step);
  if (!record) return [];
  const own = events.filter((event) => event.step === step);
  const byHand = events.filter((event) => event.step <= step).map(({ position }) => position);
  const unmasked = record.unmasked.filter(([position]) => !byHand.includes(position));
  const written = own.map(({ position, token }) => [position, token]);
  return [{ ...structuredClone(record), lane: id, unmasked, ...(written.length && { written }) }];
}

/** What a page's run is at, by what was pressed and answered. */
class Model {
  asked = null; // what waits, not open yet
  run = null; // {handle, sent, over, stepping: one step is asked for, waits: for more}
  phase = "idle";
  pending = null;
  place = 0; // in the queue, of what waits
  edited = null; // settings that the form holds and no run has
  submitted = null; // those of what waits

  get going() {
    return this.run !== null && !this.run.over;
  }

  /** What waits: "run", "branch" of a touch, "more" of a paused one, or nothing. */
  get waits() {
    if (this.asked) return this.asked.request.prompt_tokens ? "branch" : "run";
    return this.run?.waits ? "more" : null;
  }

  waitsForMore() {
    this.run.waits = true;
    this.place = 0;
  }

  /** What was asked of a paused run does not come. */
  rests() {
    this.phase = "paused";
    Object.assign(this.run, { waits: false, stepping: false });
  }

  end() {
    Object.assign(this.run, { over: true, waits: false });
    Object.assign(this, { phase: "idle", pending: null });
  }
}

const last = ({ source }) => source.asked.at(-1);

/** Notes what the page has asked for since, if anything. */
function askedSince(page, model, before) {
  if (last(page) === before) return;
  Object.assign(model, { asked: last(page), place: 0, submitted: model.waits === "run" ? model.edited : undefined });
  if (last(page).request.prompt_tokens) model.submitted = undefined;
  else model.submitted = model.edited;
}

const rests = (model) => model.asked === null && !model.going;
/** Runs, also those that are over, which have not been told that they pause or stop. */
const waiting = ({ source }, name) => source.asked.filter(({ answers }) => answers.some((each) => each.name === name));
/** Tells one of them; which. */
function answer(page, name, n) {
  const handles = waiting(page, name);
  const handle = handles[n % handles.length];
  const at = handle.answers.findIndex((each) => each.name === name);
  handle.answers.splice(at, 1)[0].then();
  return handle;
}

async function says({ pass, find }, told) {
  await pass(0);
  assert.match(find(".sl-status").textContent, told);
}

const hidden = new WeakSet(); // boxes of grids that are scrolled out of sight

/** [name, can(model, page), what it does to both]. n: any number. */
const MOVES = {
  press: [
    () => true,
    (page, model) => {
      if (model.going) model.end();
      page.live.press({ model: "stories", prompt: "x", ...FORM.values, lanes: FORM.lanes });
      Object.assign(model, { asked: last(page), place: 0, submitted: model.edited });
    },
  ],
  type: [
    () => true,
    ({ surelock }, model, n) => {
      model.edited = `prompt=${n}`;
      surelock.page.set({ edited: model.edited });
    },
  ],
  open: [
    (model) => model.asked !== null,
    (page, model) => {
      if (model.going) model.end();
      const { header, pieces } = structuredClone(RUN);
      const { lanes, prompt_tokens: touched, from } = model.asked.request;
      if (touched) header.lanes = structuredClone(lanes);
      model.asked.send({ run: `r${page.source.asked.length}`, open: { header, pieces }, pausable: true });
      const sent = Math.min(...(from?.steps ?? [0]));
      Object.assign(model, {
        run: { handle: model.asked, lanes: header.lanes, sent, over: false },
        asked: null,
        phase: "running",
        edited: model.edited === model.submitted ? null : model.edited,
      });
    },
  ],
  records: [
    (model) => model.going && model.run.sent < STEPS,
    (_, model, n) => {
      const { run } = model;
      const until = run.stepping ? run.sent + 1 : Math.min(STEPS, run.sent + 1 + (n % 4));
      const steps = range(until).slice(run.sent);
      const records = steps.flatMap((step) => run.lanes.flatMap((lane) => recordOf(lane, step)));
      run.handle.send({ pieces: {}, records });
      Object.assign(run, { sent: until, stepping: false, waits: false });
    },
  ],
  finish: [
    (model) => model.going && model.run.sent === STEPS,
    (_, model) => {
      model.run.handle.send({ end: "finished", problem: null });
      model.end();
    },
  ],
  lose: [
    (model) => model.going,
    (_, model) => {
      model.run.handle.send({ lost: "The connection was lost." });
      model.end();
    },
  ],
  late: [
    (model) => model.run?.over,
    ({ stage }, { run }, n) => {
      const kept = () => stage.runs.entries.map(({ trace, source }) => [trace.count, source]);
      const before = kept();
      const records = RUN.records.filter(({ step }) => step === run.sent);
      run.handle.send(n % 2 && records.length ? { pieces: {}, records } : { end: "finished", problem: null });
      assert.deepEqual(kept(), before, "nothing comes of what a run says after its end");
    },
  ],
  place: [
    (model) => model.asked !== null || model.going,
    (page, model, n) => {
      const place = n % 3;
      (model.asked ?? model.run.handle).send({ place, seconds: n % 7 ? n : null });
      model.place = place;
      if (place && !model.asked) model.run.waits = true; // its stream was cut
      const waiting = place ? /^Waiting for the device: \d runs? before yours/ : /^$/;
      if (model.waits) assert.match(page.surelock.page.now.waiting, waiting);
    },
  ],
  cut: [
    (model) => model.going,
    (page, model, n) => {
      const status = n % 2 ? "The run goes on by itself." : "";
      model.run.handle.send({ status });
      if (status) assert.equal(page.find(".sl-status").textContent, status);
    },
  ],
  held: [
    (model) => model.going && model.run.waits && model.asked === null,
    (page, model) => {
      model.run.handle.send({ refused: "The queue is full." });
      model.rests();
      assert.equal(page.find(".sl-status").textContent, "The queue is full.");
    },
  ],
  refuse: [
    (model) => model.asked !== null,
    (_, model) => {
      model.asked.send({ refused: "Not so." });
      model.asked = null;
    },
  ],
  pause: [
    (model) => model.phase === "running",
    (page, model) => {
      page.live.pause();
      model.pending = "pause";
      model.rests();
    },
  ],
  paused: [
    (_, page) => waiting(page, "pause").length > 0,
    async (page, model, n) => {
      const { run } = model;
      if (answer(page, "pause", n) !== run?.handle || run.over || model.pending !== "pause") return;
      model.pending = null;
      await says(page, /^Paused after step /);
    },
  ],
  resume: [
    (model) => model.phase === "paused",
    (page, model) => {
      const { run } = model;
      page.live.resume();
      if (model.pending === "stop") return;
      Object.assign(model, { phase: "running", pending: null });
      run.stepping = false;
      model.waitsForMore();
    },
  ],
  step: [
    (model) => model.phase === "paused",
    ({ live }, model) => {
      const { calls } = model.run.handle;
      const before = calls.length;
      const shown = live.step(); // says whether it is that run's to step
      const steps = shown && !model.pending && !model.run.stepping;
      assert.deepEqual(calls.slice(before), steps ? ["step"] : []);
      if (!steps) return;
      model.run.stepping = true;
      model.waitsForMore();
    },
  ],
  stop: [
    (model) => model.going || model.asked !== null,
    async (page, model) => {
      page.live.stop();
      if (model.asked) {
        assert.equal(model.asked.calls.at(-1), "leave");
        await says(page, /^Cancelled: /);
      }
      const rests = !model.asked && model.run.waits && model.place;
      if (rests) model.rests();
      if (!model.asked) model.pending = rests ? "pause" : "stop";
      model.asked = null;
    },
  ],
  stopped: [
    (_, page) => waiting(page, "stop").length > 0,
    async (page, model, n) => {
      if (answer(page, "stop", n) !== model.run?.handle || !model.going) return;
      model.end();
      if (!model.asked) await says(page, /^Stopped after step /);
    },
  ],
  clock: [() => true, (page) => page.key("s")],
  seek: [(_, { stage }) => stage.trace.count > 0, ({ stage }, _, n) => stage.timeline.seek(n % 12)],
  play: [
    (_, { stage }) => !stage.timeline.live && stage.trace.count > 0,
    ({ stage: { timeline } }) => {
      const { playing } = timeline;
      if (playing) return timeline.toggle();
      timeline.toggle();
      assert.ok(timeline.playing, "Play plays");
    },
  ],
  look: [() => true, ({ stage }, _, n) => stage.cells.compare(stage.sides[n % stage.sides.length], n % stage.trace.n)],
  menu: [() => true, ({ stage }, _, n) => stage.cells.press(stage.sides[n % stage.sides.length], n % stage.trace.n)],
  scroll: [
    () => true,
    ({ stage, see }, _, n) => {
      const { box } = stage.sides[n % stage.sides.length];
      const gone = n % 3 > 0;
      see(box, !gone);
      hidden[gone ? "add" : "delete"](box);
    },
  ],
  estimate: [
    (_, { stage }) => stage.drawer?.isOpen && stage.drawer.epsilon.lane,
    ({ stage }, _, n) => stage.drawer.epsilon.put([null, 1e-6, 1][n % 3]),
  ],
  close: [(_, { stage }) => stage.drawer.isOpen, ({ stage }) => stage.drawer.close()],
  rest: [
    () => true,
    async (page, model) => {
      page.stage.timeline.pause();
      await page.pass(400);
      agrees(page, model, true);
    },
  ],
  recorded: [
    () => true,
    ({ surelock, stage }) => {
      stage.reveal(surelock.page.now.recorded);
      assert.deepEqual([stage.drawer.isOpen, surelock.page.now.pins.size], [false, 0], "they were of another run");
    },
  ],
  touch: [
    (model, { stage }) => rests(model) && stage.trace.complete && stage.touching !== undefined,
    (page, model, n) => {
      const { stage } = page;
      const { lane } = stage.sides[n % stage.sides.length];
      const cell = PROMPT + (n % (N - PROMPT));
      const step = lane.unmaskStep(cell, lane.count - 1);
      const before = last(page);
      const why = stage.touching.runs.touch(lane, { step, kind: "write", position: cell, token: 10 + (n % 3) });
      assert.equal(why === "", last(page) !== before, why);
      askedSince(page, model, before);
    },
  ],
  undo: [
    (model, { surelock }) => rests(model) && surelock.page.now.touches !== null,
    (page, model) => {
      const before = last(page);
      const { touches } = page.surelock.page.now.touches;
      page.stage.touching.runs.undo();
      askedSince(page, model, before);
      const now = page.surelock.page.now.touches?.touches ?? [];
      assert.deepEqual(now, touches.slice(0, -1), "the last touch is taken back");
    },
  ],
  back: [
    (model, { surelock }) => rests(model) && surelock.page.now.touches !== null,
    (page, model) => {
      const before = last(page);
      page.stage.touching.runs.back();
      askedSince(page, model, before);
      assert.equal(page.surelock.page.now.touches, null, "the race is on show again");
    },
  ],
  own: [
    (model) => model.run?.sent > 0,
    ({ stage }) => stage.runs.entries.length > 1 && stage.reveal(stage.runs.entries.at(-1).trace),
  ],
};

/** A text's parts, each with how it is marked. */
const KINDS = { SPAN: "same", MARK: "other" };
const marked = ({ children }) =>
  Array.from(children, (node) => [
    node.querySelector("button") ? "fork" : KINDS[node.tagName],
    node.textContent.trim(),
  ]);
const parts = (list) => list.map(({ kind, text }) => [kind, text.trim()]);

/** A link to what is on show tells of its touches, all of them. */
function linked(trace, { touches, step }) {
  if (!touches) return;
  const { story } = readAddress(writeAddress(settingsOf(trace), { step }, "", storyOf(trace)));
  assert.deepEqual(story.touches.events, touches.touches);
}

/** What a page shows beside what it has to. settled: nothing moves, and what was asked for has come. */
function agrees(page, model, rests) {
  const { stage, surelock, find } = page;
  const { phase, pending, waits, step, edited } = surelock.page.now;
  const { phase: isAt, pending: comes, waits: waitsFor, edited: typed } = model;
  assert.deepEqual([phase, pending, waits, edited], [isAt, comes, waitsFor, typed]);
  const stop = find(".sl-control-stop");
  if (pending === "stop") assert.equal(stop.textContent, "Stopping …");
  if (pending === "pause") assert.equal(find(".sl-control-pause").textContent, "Pausing …");
  const { trace } = stage;
  const at = (lane) => trace.race.reached(lane, step);
  const { pins } = surelock.page.now;
  assert.equal(new Set(pins.values()).size, pins.size, "each pin has a colour of its own");
  const { follow, held, last: end } = stage.timeline;
  if (trace.race.live && follow) assert.ok(step <= trace.race.front, "who follows comes to the front");
  assert.ok(step <= end, `step ${step} of ${end}`);
  assert.ok(!(follow && held), "who follows has put the cursor nowhere");
  for (const side of stage.sides) {
    if (rests) assert.equal(side.canvas.getAttribute("aria-label"), gridName(side.lane, at(side.lane)));
    if (rests) assert.deepEqual(marked(side.text), parts(prose(trace, side.lane, step)), `${side.lane.name}'s text`);
    if (!side.grid.view || (!rests && hidden.has(side.box))) continue;
    const { tokens, other, step: drawn } = side.grid.view;
    assert.deepEqual([drawn, [...tokens]], [at(side.lane), [...side.lane.tokens(at(side.lane))]], side.lane.name);
    if (side.lane !== trace.reference)
      assert.deepEqual([...other], [...trace.reference.tokens(at(trace.reference))], `${side.lane.name} beside`);
  }
  if (!rests) return;
  const marks = stage.timeline.chapters;
  if (trace.race.live)
    assert.ok(
      marks.every(({ name }) => name !== "End"),
      "more steps come",
    );
  else assert.deepEqual(marks, chapters(trace), "the marks of all its steps, by this clock");
  assert.equal(find(".sl-step-label").textContent.startsWith(step < 0 ? "" : `step ${step + 1} `), true);
  linked(trace, surelock.page.now);
  const told = find(".sl-narrator").textContent;
  const about = stage.teller.told?.step;
  if (told) assert.ok(step >= about && step - about <= 2, `step ${step}: ${told}, of step ${about}`);
  if (stage.timeline.held && told) assert.equal(told, narrate(trace, step, stage.chapters));
  const over = isOver(trace, step) && waits !== "run";
  assert.equal(find(".sl-verdict").hidden, !over, "the verdict stands at the end, and there alone");
  const { drawer } = stage;
  for (const lane of trace.lanes)
    if (drawer?.epsilon?.value === null) assert.equal(drawer.epsilon.states(lane, step), undefined, "no estimate");
  if (!drawer.isOpen) return;
  const { cell } = drawer;
  assert.ok(find(".sl-inspector-title").textContent.startsWith(`Position ${cell}`));
  for (const { lane, facts, bars } of drawer.inspector.columns) {
    const told = cellText(trace, lane, cell, step);
    const [token, state] = [1, 3].map((i) => facts.children[i].textContent);
    assert.ok(told.includes(state) && (token === "masked" || told.includes(token)), `${told}: ${token}, ${state}`);
    const t = at(lane);
    if (lane.top(cell, t) === null && t >= 0 && lane.source?.run)
      assert.equal(bars.textContent, `${lane.id}/${cell}/${t}100 %`, "likely words of the lane's own step");
  }
}

/** Makes a move, after which the page agrees. */
async function make(page, model, move, n) {
  await move(page, model, n);
  await page.pass(40);
  agrees(page, model, false);
}

/** A sequence of moves, each one of those that can be made then. */
async function play(page, list) {
  const model = new Model();
  const made = [];
  try {
    for (const number of list) {
      const { name, move, n } = chosenMove(MOVES, number, (can) => can(model, page));
      made.push(name);
      await make(page, model, move, n);
      if (number % 4 === 0) await MOVES.rest[1](page, model);
    }
    await MOVES.rest[1](page, model);
  } catch (error) {
    throw new Error(`After ${made.join(", ")}: ${error.message}`, { cause: error });
  }
}

test("whatever is pressed, answered and looked at, the page shows the cursor's step and the run's phase", async () => {
  const sequence = async (list) => play(await open("", { recorded: RUN }), list);
  await fc.assert(fc.asyncProperty(numbers(60), sequence), { ...RANDOM, numRuns: 40 });
});

/** A page after these moves, which has agreed after every one of them. */
async function after(...names) {
  const page = await open("", { recorded: RUN });
  const model = new Model();
  for (const name of names) await make(page, model, MOVES[name][1], 0);
  return page;
}

test("a pause that is told late changes nothing once Stop was pressed", async () => {
  const { find } = await after("press", "open", "records", "pause", "stop", "paused");
  assert.equal(find(".sl-status").textContent, "Stopping after this step …");
});

test("a paused run takes one step after another", async () => {
  await after("press", "open", "records", "pause", "paused", "step", "records", "step", "records", "step");
});
