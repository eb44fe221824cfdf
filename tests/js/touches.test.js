// The page under random sequences of presses, touches, undo, back and answers: one of two wins, nothing hangs, and what is on
// show is what the page says that it is.

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { touchable, touchesOf } from "../../assets/js/trace/touches.js";
import { open } from "./browser.js";
import { FORM } from "./described.js";
import { chosenMove, decoder, numbers, RANDOM, raceOf } from "./small.js";

const [N, PROMPT, STEPS] = [14, 4, 10];
const range = (length) => Array.from({ length }, (_, i) => i);

/** Two lanes that write a position a step. */
function liveRun() {
  const side = (id, name, compute) => [
    decoder(id, name, compute, { settings: { gen_length: N - PROMPT } }),
    range(STEPS).map((t) => ({
      unmasked: [[PROMPT + t, 10 + (t % 3)]],
      locked: t && id === "b" ? [PROMPT + t - 1] : [],
    })),
  ];
  const sides = [side("a", "All", { kind: "everything" }), side("b", "Locks", { kind: "age", steps: 1 })];
  const made = raceOf(sides, {
    length: N,
    prompt: range(PROMPT).map(() => 10),
    pieces: { 10: " cat", 11: " sat", 12: "s" },
  });
  made.header.model.name = "stories";
  return made;
}

const RUN = liveRun();

/** Speaks for the source: opens what was asked for last, and sends steps of it from where the page has it. */
class Speaker {
  sent = new Map(); // by handle: {run, lanes: [{id, next}], over}

  constructor(page) {
    this.page = page;
  }

  get last() {
    return this.page.source.asked.at(-1);
  }

  /** Whether the last run that was asked for waits still: neither opened nor left. */
  get waits() {
    return this.last !== undefined && !this.sent.has(this.last) && !this.last.calls.includes("leave");
  }

  open() {
    const handle = this.last;
    const { lanes, from } = handle.request;
    const run = `r${this.page.source.asked.length}`;
    const header = structuredClone(RUN.header);
    const whole = lanes.map((lane, i) => ({
      ...decoder(lane.id, lane.name, lane.compute),
      ...header.lanes[i],
      ...lane,
    }));
    const told = lanes.every(({ id }) => id.startsWith("lane-"))
      ? whole.map((lane, i) => ({ ...lane, settings: header.lanes[i].settings }))
      : whole;
    this.sent.set(handle, {
      run,
      lanes: lanes.map(({ id, events }, i) => ({ id, events, next: from?.steps[i] ?? 0 })),
      over: false,
    });
    handle.send({ run, open: { header: { ...header, lanes: told }, pieces: RUN.pieces }, pausable: true });
  }

  going() {
    return [...this.sent].filter(
      ([{ calls }, { over }]) => !over && calls.at(-1) !== "pause" && calls.at(-1) !== "stop",
    );
  }

  /** One step of each lane of a run on its way. */
  step([handle, state]) {
    const records = state.lanes
      .filter(({ next }) => next < STEPS)
      .map((lane) => {
        const own = RUN.records.find(({ lane: id, step }) => id === "b" && step === lane.next);
        const written = (lane.events ?? []).filter(({ kind, step }) => kind === "write" && step === lane.next);
        const places = written.map(({ position }) => position);
        lane.next++;
        const unmasked = own.unmasked.filter(([position]) => !places.includes(position));
        const more = written.length && { written: written.map(({ position, token }) => [position, token]) };
        return { ...own, ...more, unmasked, locked: own.locked.filter((p) => !places.includes(p)), lane: lane.id };
      });
    if (records.length) return handle.send({ pieces: {}, records: structuredClone(records) });
    state.over = true;
    return handle.send({ end: "finished", problem: null });
  }
}

const MOVES = {
  press: [
    () => true,
    ({ page }) => page.live.press({ model: "stories", prompt: "x", ...FORM.values, lanes: FORM.lanes }),
  ],
  open: [({ speaker }) => speaker.waits, ({ speaker }) => speaker.open()],
  step: [
    ({ speaker }) => speaker.going().length,
    ({ speaker }, n) => speaker.step(speaker.going()[n % speaker.going().length]),
  ],
  steps: [
    ({ speaker }) => speaker.going().length,
    ({ speaker }, n) => {
      for (let i = 0; i < 4 && speaker.going().length; i++) speaker.step(speaker.going()[n % speaker.going().length]);
    },
  ],
  touch: [
    ({ page }) => page.stage.trace.count > 0,
    ({ page }, n) => {
      const { stage, surelock } = page;
      const lane = stage.sides[n % stage.sides.length].lane;
      const cell = PROMPT + (n % (stage.trace.n - PROMPT));
      const t = stage.trace.race.reached(lane, surelock.page.now.step);
      const can = touchable(stage.trace, lane, cell, t);
      if (can.writes === null || can.writes > lane.count) return;
      const why = stage.touching.runs.touch(lane, { step: can.writes, kind: "write", position: cell, token: 12 });
      if (!why) assert.equal(surelock.page.now.touches.touched, stage.trace.lanes[1]);
    },
  ],
  undo: [({ page }) => page.surelock.page.now.touches, ({ page }) => page.stage.touching.runs.undo()],
  back: [({ page }) => page.surelock.page.now.touches, ({ page }) => page.stage.touching.runs.back()],
  menu: [({ page }) => page.stage.trace.count > 0, ({ page }, n) => page.stage.cells.press(page.stage.sides[0], n % N)],
  close: [() => true, ({ page }) => page.stage.touching?.close()],
  refuse: [
    ({ speaker }) => speaker.waits,
    ({ speaker }) => {
      speaker.sent.set(speaker.last, { lanes: [], over: true });
      speaker.last.send({ refused: "Not so." });
    },
  ],
  lose: [
    ({ speaker }) => speaker.going().length,
    ({ speaker }) => {
      const [handle, state] = speaker.going()[0];
      state.over = true;
      handle.send({ lost: "The connection was lost." });
    },
  ],
  pause: [({ page }) => page.surelock.page.now.phase === "running", ({ page }) => page.live.pause()],
  resume: [({ page }) => page.surelock.page.now.phase === "paused", ({ page }) => page.live.resume()],
  stop: [() => true, ({ page }) => page.live.stop()],
  seek: [({ page }) => page.stage.trace.count > 0, ({ page }, n) => page.stage.timeline.seek(n % 12)],
};

/** What holds whatever happened. */
function agrees({ page }) {
  const { stage, surelock, live, document } = page;
  const { trace, touches, phase, waits } = surelock.page.now;
  assert.equal(stage.trace, trace);
  assert.deepEqual(touches, touchesOf(trace));
  assert.equal(stage.sides.length, trace.lanes.length);
  assert.ok(document.querySelectorAll(".sl-touch").length <= 1, "one menu at a time");
  if (stage.touching) assert.equal(document.querySelector(".sl-touched-box").hidden, touches === null);
  assert.equal(phase === "idle", !live.run || Boolean(live.run.over), phase);
  if (live.aside) assert.notEqual(live.aside, live.run);
  for (const lane of trace.lanes) assert.equal(lane.records.length, lane.count);
  if (waits === "run" || waits === "branch") assert.ok(live.branching !== undefined);
}

async function play(list) {
  const page = await open("", { recorded: RUN });
  await page.stage.parts.touching.use();
  page.stage.timeline.setRace(false);
  const here = { page, speaker: new Speaker(page) };
  const made = [];
  try {
    for (const number of list) {
      const { name, move, n } = chosenMove(MOVES, number, (can) => can(here));
      made.push(name);
      move(here, n); // what it promises may wait for an answer
      await page.pass(20);
      agrees(here);
    }
    made.push("the end");
    for (let i = 0; i < 60 && (here.speaker.waits || here.speaker.going().length); i++) {
      if (here.speaker.waits) here.speaker.open();
      for (const run of here.speaker.going()) here.speaker.step(run);
      await page.pass(5);
    }
    const { now } = page.surelock.page;
    assert.ok(["idle", "paused"].includes(now.phase) || now.pending === "stop", `nothing hangs: ${now.phase}`);
    if (now.touches) page.stage.touching.runs.back();
    if (page.surelock.page.now.waits === null)
      assert.equal(page.surelock.page.now.touches, null, "there is a way back");
  } catch (error) {
    throw new Error(`After ${made.join(", ")}: ${error.message}`, { cause: error });
  }
}

test("whatever is pressed, touched, undone and answered, one of them wins and nothing hangs", async () => {
  await fc.assert(fc.asyncProperty(numbers(40), play), { ...RANDOM, numRuns: 8 });
});
