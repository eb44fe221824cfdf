import assert from "node:assert/strict";
import test from "node:test";

import { stopButton } from "../../assets/js/form/controls.js";
import { paysLine, paysText } from "../../assets/js/form/pays.js";
import { fieldOf } from "../../assets/js/form/refusal.js";
import { where } from "../../assets/js/form/where.js";
import { page } from "../../assets/js/run/state.js";
import { about, waitingText, warningOf } from "../../assets/js/run/wording.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { onPage } from "./page.js";
import { decoder as decoderOf, raceOf } from "./small.js";

const idle = { phase: "idle", pending: null, waits: null, place: 0 };

test("the button that ends a run says what it does, and that it has been pressed", () => {
  const told = (now) => Object.values(stopButton({ ...idle, ...now }));
  assert.deepEqual(told({}), ["Stop", true]);
  assert.deepEqual(told({ waits: "run" }), ["Cancel", false]);
  assert.deepEqual(told({ phase: "running" }), ["Stop", false]);
  assert.deepEqual(told({ phase: "running", pending: "stop" }), ["Stopping …", true]);
  assert.deepEqual(told({ phase: "running", pending: "pause" }), ["Stop", false]);
  assert.deepEqual(told({ phase: "paused", waits: "more", place: 0 }), ["Stop", false]);
  assert.deepEqual(told({ phase: "paused", waits: "more", place: 2 }), ["Cancel", false]);
});

test("where Run computes is said as it is: typed rules run in this browser, some policies on the server", (t) => {
  onPage(t);
  globalThis.matchMedia = () => ({ matches: false });
  page.set({ sources: ["server"], source: "server", typed: false });
  const choice = where().find("sl-action-where"); // the form may come before the stage says who computes
  page.set({ sources: ["server", "browser"] });
  const told = () => [choice.value, Boolean(choice.disabled)];
  assert.deepEqual(told(), ["server", false]);
  page.set({ typed: true });
  assert.deepEqual(told(), ["browser", true]);
  page.set({ typed: false, source: "browser" });
  assert.deepEqual(told(), ["browser", false]);
  page.set({ served: "All near a sure one" });
  assert.deepEqual(told(), ["server", true]);
  assert.equal(choice.title, "“All near a sure one” runs on the server");
  page.set({ served: "", source: "server" });
});

/** A run of 32 steps: a lane of every row, and others whose steps take so many seconds. */
const timedRun = (seconds, { together = true } = {}) => {
  const lanes = Object.entries({ every: 1, ...seconds }).map(([id, took]) => {
    const kind = id === "every" ? "everything" : "age";
    const written = (step) => (step < 2 ? [[2 + step, 20]] : []);
    const list = Array.from({ length: 32 }, (_, step) => ({ seconds: took, unmasked: written(step) }));
    return [decoderOf(id, id, { kind }), list];
  });
  const made = raceOf(lanes);
  if (!together) made.header.timed_together = [];
  return Trace.parse(made);
};

test("whether it pays here is a quiet line from what the last run has shown", (t) => {
  assert.equal(
    paysText(timedRun({ a: 0.5, b: 2, c: 1 })),
    "In the last run (2 tokens), beside every row: “a” 2.0 times as fast, “b” 0.5 times as fast, “c” no faster and no slower.",
  );
  assert.equal(paysText(timedRun({ a: 0.5 }, { together: false })), "", "times of two races are not compared");
  assert.equal(paysText(timedRun({})), "");
  onPage(t);
  const line = paysLine();
  assert.equal(line.textContent, "");
  page.set({ ended: timedRun({ a: 0.5 }) });
  assert.match(line.textContent, /“a” 2.0 times as fast/);
  page.set({ ended: null });
});

test("a place in the queue is a sentence with how long it takes, and none where it begins", () => {
  const long = (place, seconds) => waitingText({ place, seconds });
  assert.deepEqual(
    [long(12, 120), long(1, 10), long(1, null), long(0, 0)],
    [
      "Waiting for the device: 12 runs before yours, about 2 min.",
      "Waiting for the device: 1 run before yours, about 10 s.",
      "Waiting for the device: 1 run before yours.",
      "",
    ],
  );
});

test("an estimate is told no better than to five seconds", () => {
  assert.deepEqual([null, undefined, Number.NaN, 0, 4.9, 5, 12.4, 12.5, 89, 90, 150].map(about), [
    "",
    "",
    "",
    ", a few seconds",
    ", a few seconds",
    ", about 5 s",
    ", about 10 s",
    ", about 15 s",
    ", about 90 s",
    ", about 2 min",
    ", about 3 min",
  ]);
});

test("one quiet sentence warns of rare words, of many tokens a step, of a high temperature, and of nothing else", () => {
  const plain = { rare: false, length: 64, steps: 16, temperature: 1 };
  const told = (more) => warningOf({ ...plain, ...more });
  assert.equal(told({}), "");
  assert.match(told({ rare: true }), /few of these words/);
  assert.match(told({ length: 65 }), /^With more than 4 tokens a step/);
  assert.match(told({ temperature: 1.1 }), /temperature above 1/);
  assert.equal(told({ steps: 0 }), "", "steps that follow the length");
});

test("what is refused of the prompt stands at the prompt", () => {
  assert.equal(fieldOf("Prompt is empty: write a few words for the model to continue."), "prompt");
  assert.equal(fieldOf("Too long: 900 tokens; at most 512 fit here."), "prompt");
  assert.equal(fieldOf("The queue is full."), null);
});
