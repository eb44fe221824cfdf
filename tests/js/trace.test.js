import assert from "node:assert/strict";
import test from "node:test";

import { Trace, TraceError } from "../../assets/js/trace.js";
import { base64, record, small } from "./small.js";

const trace = Trace.parse(small());
const { baseline, surelock } = trace;
const joined = (rows) => rows.map((row) => row.join(" "));

/** Equal but for the rounding to 32 bits. */
function near(actual, expected) {
  const rounded = Array.from(actual, (x, i) => (Math.abs(x - expected[i]) <= 1e-6 * Math.abs(x) ? expected[i] : x));
  assert.deepEqual(rounded, expected);
}

test("the bytes of a KL are zero, 1e-12 to 100 on a log scale, and infinite", () => {
  near(surelock.kl.subarray(0, 4), [0, 1e-12, 100, Infinity]);
  near(surelock.confidence.subarray(0, 4), [0, 0.2, 0.4, 1]);
});

test("numbers come as lists too, null is an infinite KL, and what was not computed is NaN", () => {
  near(baseline.kl.subarray(0, 4), [Infinity, Infinity, Infinity, Infinity]);
  near(surelock.kl.subarray(4, 8), [NaN, 0.5, 0.5, 0.5]);
  near(surelock.confidence.subarray(8, 12), [1, NaN, NaN, 1]);
});

test("states and tokens follow unmasking, locks and unlocks", () => {
  const states = [-1, 0, 1, 2, 99].map((t) => surelock.row(t));
  assert.deepEqual(joined(states), ["1 1 0 0", "2 1 1 0", "1 2 1 1", "2 2 2 1", "2 2 2 1"]);
  const tokens = [-1, 0, 1].map((t) => surelock.tokens(t));
  assert.deepEqual(joined(tokens), ["10 11 -1 -1", "10 11 12 -1", "10 11 12 14"]);
});

test("lastComputed and lockStep look back from a step", () => {
  const computed = [-1, 0, 1, 2].map((t) => surelock.lastComputed(0, t));
  const locked = [-1, 0, 1, 2].map((t) => surelock.lockStep(0, t));
  assert.deepEqual(joined([computed, locked]), ["-1 0 0 2", "-1 0 -1 2"]);
  const kept = Trace.parse({ ...small(), records: [record("surelock", 0, { locked: [3] }), record("surelock", 1)] });
  assert.deepEqual([surelock.lockStep(1, 2), kept.surelock.lockStep(3, 1)], [1, 0]);
});

test("top gives what was last listed", () => {
  assert.deepEqual(joined(surelock.top(1, 2)), ["5 1", "6 0.2", "7 0", "8 0", "9 0"]);
  assert.deepEqual([surelock.top(1, 0), surelock.top(0, 2), baseline.top(0, 2)], [[], [], null]);
});

test("the band of a step leaves out infinite values", () => {
  const band = ({ low, median, high }) => [low, median, high];
  near(band(baseline.steps[1]), [0.3, 1.5, 2.7]);
  near(band(surelock.steps[0]), [2e-13, 1e-12, 80]);
  assert.deepEqual(band(baseline.steps[0]), [NaN, NaN, NaN]);
});

test("agreement counts what both have unmasked, totals add up", () => {
  const agreement = [-1, 0, 1].map((t) => Object.values(trace.agreement(t)));
  assert.deepEqual(joined(agreement), ["0 0", "1 1", "2 1"]);
  const end = { flopsShare: 0.8, locked: 3, seconds: [3, 2], activeRatio: 9 / 12, both: 2, equal: 1 };
  assert.deepEqual([trace.totals(2), trace.totals(-1)], [end, null]);
});

test("a trace knows its document and its epsilon, and pairs with another", () => {
  assert.deepEqual(trace.toDocument(), small());
  assert.deepEqual([trace.count, trace.steps, trace.promptLength, trace.epsilon], [3, 3, 2, 0.01]);
  const pair = Trace.pair(trace, Trace.parse(small()));
  assert.deepEqual(pair.agreement(2), { both: 2, equal: 2 });
});

const first = (more) => ({ records: [record("surelock", 0, more)] });
const headed = (more) => ({ header: { ...small().header, ...more } });
const damages = [
  ["is not a SureLock trace", { format: "x" }],
  ["version 9", { version: 9 }],
  ["no usable length", { header: undefined }],
  ["no usable length", headed({ length: 0 })],
  ["no usable length", headed({ length: 8192, steps: 8192 })],
  ["no usable length", headed({ prompt_tokens: [1, 2, 3, 4, 5] })],
  ["no settings", headed({ settings: null })],
  ["neither text nor bytes", { pieces: { 1: 2 } }],
  ["neither text nor bytes", { pieces: { 1: [256] } }],
  ["no records", { records: undefined }],
  ["no steps", { records: [] }],
  ["no decoder", { records: [record("other", 0)] }],
  ["in order", { records: [record("surelock", 1)] }],
  ["in order", { records: [0, 1, 2, 3].map((t) => record("surelock", t)) }],
  ["outside the sequence", first({ locked: [4] })],
  ["outside the sequence", first({ computed: [1, 4] })],
  ["outside the sequence", first({ computed: [2, 2, 0, 2] })],
  ["positions is incomplete", first({ computed: [0] })],
  ["number of KL values", first({ kl: [1] })],
  ["not base64", first({ confidence: "%" })],
  ["no position", first({ unmasked: [7] })],
  ["no list of locked", first({ locked: null })],
  ["no number", first({ seconds: -1 })],
  ["number of likely tokens", first({ top: { at: [0, 1], ids: [1], p: base64(1) } })],
];

test("a damaged trace is refused in one sentence", () => {
  for (const [part, change] of damages)
    assert.throws(
      () => Trace.parse({ ...small(), ...change }),
      (error) => error instanceof TraceError && /^[A-Z][^.]+\.$/.test(error.message) && error.message.includes(part),
      JSON.stringify(change),
    );
});
