// A file from anywhere: a trace that every part of the page can read, or one sentence.

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { toCsv } from "../../assets/js/export/share.js";
import { narrate } from "../../assets/js/stage/narrator.js";
import { cellText, summary } from "../../assets/js/stage/spoken.js";
import { chapters } from "../../assets/js/trace/chapters.js";
import { TraceError } from "../../assets/js/trace/damage.js";
import { prose } from "../../assets/js/trace/prose.js";
import { parseTrace, readTrace } from "../../assets/js/trace/reading.js";
import { everything } from "../../assets/js/trace/results.js";
import { base64, byHand, decoder, RANDOM, record, small } from "./small.js";

const event = (kind, more) => ({ step: 1, kind, position: 2, ...more });

/** A document that says all that a document may say. */
function full() {
  const made = small();
  const pair = { kind: "both", lock: { kind: "lock", unlock: { after: 3 } }, select: { kind: "age" } };
  const events = [event("write", { token: 12 }), event("lock"), { step: 2, kind: "rule", compute: pair }];
  Object.assign(made.header, { prompt: "Once upon", created: "2026", engine: "torch 2", reference: "b" });
  Object.assign(made.header.lanes[1], { compute: pair, events, parent: "a", engine: "onnx 1" });
  Object.assign(made.records[0], { commit_error: [0.5], changed: [2], regret: 0.1 });
  return { ...made, view: { step: 1, pins: [3], by_clock: true } };
}

const sentence = (error) => error instanceof TraceError && /^[A-Z].+\.$/.test(error.message);

/** Everything that the page reads of a trace. */
function readAll(trace) {
  for (const byClock of [false, true]) {
    trace.race.byClock = byClock;
    const moments = chapters(trace);
    for (let step = -1; step <= trace.race.last; step++) {
      summary(trace, step);
      if (step >= 0) narrate(trace, step, moments);
      for (const lane of trace.lanes) {
        prose(trace, lane, step);
        for (let p = 0; p < trace.n; p++) cellText(trace, lane, p, step);
      }
    }
  }
  for (const lane of trace.lanes) everything(trace, lane);
  assert.equal(toCsv(trace).length, 1 + trace.lanes.reduce((sum, { count }) => sum + count, 0));
  readTrace(JSON.parse(JSON.stringify(trace.toDocument(new Map(), {}, trace.view))));
}

/** Every place of a document: [names on the way to it]. */
const placesIn = (value, at = []) =>
  typeof value !== "object" || value === null
    ? [at]
    : [at, ...Object.entries(value).flatMap(([name, each]) => placesIn(each, [...at, name]))];

const ODD = [
  null,
  {},
  [],
  "",
  "x",
  "x".repeat(81),
  -1,
  0,
  1.5,
  2,
  7,
  9000,
  2 ** 31,
  1e300,
  true,
  [[2, 1]],
  [null],
  { kind: "both" },
  { kind: "x", a: {} },
];
const DOCUMENTS = [full, byHand];

function put(document, place, value) {
  const at = place.slice(0, -1).reduce((found, name) => found?.[name], document);
  if (typeof at !== "object" || at === null) return;
  if (value === undefined) delete at[place.at(-1)];
  else at[place.at(-1)] = structuredClone(value);
}

test("a document with one or two odd values is read by every part of the page, or refused in one sentence", () => {
  const damage = (document) =>
    fc.array(fc.tuple(fc.constantFrom(...placesIn(document()).slice(1)), fc.constantFrom(undefined, ...ODD)), {
      minLength: 1,
      maxLength: 2,
    });
  const cases = fc.oneof(...DOCUMENTS.map((document) => damage(document).map((changes) => ({ document, changes }))));
  fc.assert(
    fc.property(cases, ({ document, changes }) => {
      const made = structuredClone(document());
      for (const [place, value] of changes) put(made, place, value);
      let trace;
      try {
        trace = readTrace(JSON.parse(JSON.stringify(made)));
      } catch (error) {
        assert.ok(sentence(error), `${error.stack}`);
        return;
      }
      readAll(trace);
    }),
    { ...RANDOM, numRuns: 3000 },
  );
  for (const document of DOCUMENTS) readAll(readTrace(document()));
});

const first = (more) => ({ records: [record("b", 0, more)] });
const headed = (more) => ({ header: { ...small().header, ...more } });
const [lane] = [decoder("v", "v", { kind: "everything" })];
/** [part of the sentence, what is wrong]: what fits its own shape and nothing beside it. */
const UNFIT = [
  ["is not a SureLock trace", { format: "x" }],
  ["has version 01234567890123456789;", { version: "0123456789".repeat(9) }],
  ["“header” of the file must be an object", { header: undefined }],
  ["“length” of its header must be a whole number from 1 to 8192", headed({ length: 0 })],
  ["“name” of lane 1 must be a text of 1 to 80 characters", headed({ lanes: [{ ...lane, name: "" }] })],
  ["must be 1 to 4 lanes", headed({ lanes: new Array(5).fill(lane) })],
  ["too large", headed({ length: 8192, steps: 8192 })],
  ["prompt is longer", headed({ prompt_tokens: [1, 2, 3, 4, 5] })],
  ["same id", headed({ lanes: [lane, lane] })],
  ["lane that is not there", headed({ reference: "nobody" })],
  ["lane that is not there", headed({ lanes: [{ ...lane, parent: "nobody" }] })],
  ["two of its timing groups", headed({ timed_together: [{ lanes: ["a"] }, { lanes: ["a", "b"] }] })],
  ["no steps", { records: [] }],
  ["no lane", { records: [record("other", 0)] }],
  ["in order", { records: [record("b", 1)] }],
  ["in order", { records: [0, 1, 2, 3].map((t) => record("b", t)) }],
  ["outside the sequence", first({ locked: [4] })],
  ["outside the sequence", first({ written: [[4, 1]] })],
  ["outside the sequence", first({ computed: [1, 4] })],
  ["outside the sequence", first({ computed: [2, 2, 0, 2] })],
  ["positions is incomplete", first({ computed: [0] })],
  ["number of KL values", first({ kl: [1] })],
  ["number of confidence values", first({ confidence: [1] })],
  ["not base64", first({ confidence: "%" })],
  ["number of commit errors", first({ commit_error: [1] })],
  ["likely tokens and 5 probabilities", first({ top: { at: [0, 1], ids: [1], p: base64(1) } })],
];

test("what does not fit together is refused in a sentence that names it", () => {
  for (const [part, change] of UNFIT)
    assert.throws(
      () => readTrace({ ...small(), ...change }),
      (error) => sentence(error) && error.message.includes(part),
      part,
    );
  for (const none of [null, undefined, 5]) assert.throws(() => readTrace(none), sentence);
  assert.throws(() => parseTrace("{torn"), sentence);
});
