import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { sameText } from "../../assets/js/dom.js";
import { Trace, TraceError } from "../../assets/js/trace.js";
import { CHECK, make } from "./make-check.js";
import { base64, byHand, contestant, record, small } from "./small.js";

const trace = Trace.parse(small());
const [all, locks] = trace.lanes;
const joined = (rows) => rows.map((row) => row.join(" "));
const steps = [-1, 0, 1, 2, 99];

/** Equal but for the rounding to 32 bits. */
function near(actual, expected) {
  const rounded = Array.from(actual, (x, i) => (Math.abs(x - expected[i]) <= 1e-6 * Math.abs(x) ? expected[i] : x));
  assert.deepEqual(rounded, expected);
}

test("the bytes of a KL are zero, 1e-12 to 100 on a log scale, and infinite", () => {
  near(locks.kl.subarray(0, 4), [0, 1e-12, 100, Infinity]);
  near(locks.confidence.subarray(0, 4), [0, 0.2, 0.4, 1]);
});

test("numbers come as lists too, null is an infinite KL, and what was not computed is NaN", () => {
  near(all.kl.subarray(0, 4), [Infinity, Infinity, Infinity, Infinity]);
  near(locks.kl.subarray(4, 8), [NaN, 0.5, 0.5, 0.5]);
  near(locks.confidence.subarray(8, 12), [1, NaN, NaN, 1]);
});

test("states and tokens follow unmasking, locks and unlocks; what is not computed rests", () => {
  const states = steps.map((t) => locks.row(t));
  assert.deepEqual(joined(states), ["1 1 0 0", "2 1 1 0", "3 2 1 1", "2 2 2 1", "2 2 2 1"]);
  const tokens = [-1, 0, 1].map((t) => locks.tokens(t));
  assert.deepEqual(joined(tokens), ["10 11 -1 -1", "10 11 12 -1", "10 11 12 14"]);
});

test("what a person wrote, masked and unlocked scrubs both ways", () => {
  const [lane] = Trace.parse(byHand()).lanes;
  assert.deepEqual(joined(steps.map((t) => lane.row(t))), ["1 1 0 0", "2 3 1 0", "2 3 4 1", "2 1 1 3", "2 1 1 3"]);
  assert.deepEqual(joined([0, 1, 2].map((t) => lane.tokens(t))), ["10 11 12 -1", "10 11 -1 13", "10 11 15 14"]);
  const since = [0, 1, 2].map((t) => [2, 3].map((p) => lane.unmaskStep(p, t)));
  assert.deepEqual(since, [
    [0, NaN],
    [NaN, 1],
    [2, 1],
  ]);
  assert.deepEqual([lane.unmaskStep(0, 2), lane.endsAt(1), lane.endsAt(2)], [-1, false, true]);
});

test("lastComputed and lockStep look back from a step", () => {
  const computed = [-1, 0, 1, 2].map((t) => locks.lastComputed(0, t));
  const locked = [-1, 0, 1, 2].map((t) => locks.lockStep(0, t));
  assert.deepEqual(joined([computed, locked]), ["-1 0 0 2", "-1 0 -1 2"]);
  assert.equal(locks.lockStep(1, 2), 1);
});

test("top gives what was last listed", () => {
  assert.deepEqual(joined(locks.top(1, 2)), ["5 1", "6 0.2", "7 0", "8 0", "9 0"]);
  assert.deepEqual([locks.top(1, 0), locks.top(0, 2), all.top(0, 2)], [[], [], null]);
});

test("the band of a step leaves out infinite values", () => {
  const band = ({ low, median, high }) => [low, median, high];
  near(band(all.steps[1]), [0.3, 1.5, 2.7]);
  near(band(locks.steps[0]), [2e-13, 1e-12, 80]);
  assert.deepEqual(band(all.steps[0]), [NaN, NaN, NaN]);
});

test("totals are beside the reference", () => {
  const shared = { locked: 3, seconds: 2, activeRatio: 9 / 12, steps: 3 };
  const end = {
    flopsShare: 0.8,
    everyShare: 0.8,
    ...shared,
    against: 3,
    speed: 1.5,
    damage: null,
    same: { words: 1, whole: false, open: false },
  };
  assert.deepEqual([trace.totals(locks, 2), trace.totals(locks, -1)], [end, null]);
  trace.reference = locks;
  const { flopsShare, everyShare, speed } = trace.totals(all, 2);
  assert.deepEqual([flopsShare, everyShare, speed, trace.totals(locks, 2).flopsShare], [300 / 240, 1, 2 / 3, 0.8]);
  assert.equal(trace.toDocument().header.reference, "b");
  trace.reference = all;
});

test("what two texts share is counted in words", () => {
  const compared = (mine, theirs) => {
    const pieces = { 0: "end", 1: " a", 2: " cat", 3: "s", 4: ",", 5: " dog" };
    const header = { ...small().header, prompt_tokens: [], length: 4, eos_id: 0 };
    const of = (tokens) => ({ clamp: (t) => t, token: (p) => tokens[p] ?? -1 });
    return new Trace({ header, pieces }).sameText(of(mine), of(theirs), 0);
  };
  const same = (mine, theirs) => {
    const { words, whole } = compared(mine, theirs);
    return [words, whole];
  };
  assert.deepEqual(same([1, 2, 4, 5], [1, 2, 4, 5]), [3, true]);
  assert.deepEqual(same([1, 2, 0, 5], [1, 2, 0, 1]), [2, true]);
  assert.deepEqual(same([1, 2, 4, 5], [1, 2, 5, 1]), [2, false]);
  assert.deepEqual(same([1, 2, 3, 5], [1, 2, 5, 1]), [1, false]);
  assert.deepEqual(same([1, 2, 0], [1, 2, 3]), [1, false]);
  assert.deepEqual(
    [same([1, 5], [2, 5]), same([], []), same([1], [1])],
    [
      [0, false],
      [0, false],
      [1, false],
    ],
  );
  const pairs = [
    [[], [1]],
    [[1], []],
    [[1], [1]],
    [
      [1, 5],
      [2, 5],
    ],
    [
      [1, 0],
      [1, 0],
    ],
  ];
  const read = pairs.map(([mine, theirs]) => compared(mine, theirs));
  assert.deepEqual(
    read.map(({ open, ...same }) => [open, sameText({ open, ...same })]),
    [
      [true, "nothing to compare yet"],
      [true, "nothing to compare yet"],
      [true, "the same text for the first word"],
      [false, "another text from the first word"],
      [false, "the same text"],
    ],
  );
});

test("commit errors come with the records or after them, and add up from step to step", () => {
  const document = small();
  const errors = (lane) =>
    document.records.filter(({ contestant: own }) => own === lane).map(({ unmasked }) => unmasked.map(() => 0.25));
  const later = Trace.parse(document);
  assert.equal(later.totals(later.lane("b"), 2).damage, null);
  later.lane("b").score(errors("b"), [[2], [], []]);
  const told = [0, 2].map((t) => later.totals(later.lane("b"), t).damage);
  const count = document.records
    .filter(({ contestant: own }) => own === "b")
    .flatMap(({ unmasked }) => unmasked).length;
  assert.deepEqual(told[1], { commits: count, nats: count / 4, mean: 0.25, changed: 1 });
  assert.equal(told[0].changed, 1);
  const again = Trace.parse(later.toDocument());
  assert.deepEqual(
    [0, 2].map((t) => again.totals(again.lane("b"), t).damage),
    told,
  );
  const damaged = later.toDocument();
  damaged.records.find(({ commit_error: list }) => list?.length).commit_error.push(1);
  assert.throws(() => Trace.parse(damaged), /commit errors/);
});

test("what judges said stays with the lanes, also in a document", () => {
  const said = { "a judge": { b: { bits_per_character: 1.25, nats: [0.5], tokens: ["x"] } } };
  const judged = Trace.parse({ ...small(), scores: said });
  assert.deepEqual(judged.lane("b").judged, { "a judge": said["a judge"].b });
  assert.deepEqual([judged.lane("a").judged, judged.toDocument().scores], [{}, said]);
  const alone = judged.withLanes([judged.lane("a")]);
  assert.equal(alone.toDocument().scores, undefined);
  assert.throws(
    () => Trace.parse({ ...small(), scores: { "a judge": { b: { bits_per_character: "x" } } } }),
    TraceError,
  );
});

test("rules and events have all that the page speaks of", () => {
  const spoilt = (change) => {
    const document = small();
    Object.assign(document.header.contestants[1], change);
    return () => Trace.parse(document);
  };
  const lock = { kind: "lock" };
  for (const change of [
    { compute: { kind: "both", lock } },
    { compute: { kind: "both", select: { kind: "select" } } },
    { events: [{ step: 1, kind: "rule" }] },
    { events: [{ step: 1, kind: "lock" }] },
    { events: [{ step: 1, kind: "write", position: 2 }] },
  ])
    assert.throws(spoilt(change), TraceError);
  spoilt({ compute: { kind: "both", lock, select: { kind: "select" } } })();
  spoilt({ events: [{ step: 1, kind: "write", position: 2, token: 5 }] })();
});

test("a trace knows its document, its sizes and what locks", () => {
  const { header, ...rest } = small();
  assert.deepEqual(trace.toDocument(), { header: { ...header, reference: "a" }, ...rest });
  assert.deepEqual([trace.count, trace.steps, trace.promptLength], [3, 3, 2]);
  assert.deepEqual([all.epsilon, locks.epsilon], [NaN, 0.01]);
});

test("a branch has its parent's first steps, in every way", () => {
  const whole = Trace.parse(small());
  const child = contestant(
    "c",
    "Child",
    { kind: "age", steps: 3 },
    { parent: "b", events: [{ step: 2, kind: "rule", compute: { kind: "everything" } }] },
  );
  const lane = whole.branch(child, 2);
  assert.equal(lane.count, 2);
  for (const t of [0, 1]) {
    assert.deepEqual(lane.row(t), locks.row(t));
    assert.deepEqual(lane.tokens(t), locks.tokens(t));
  }
  assert.deepEqual(lane.kl.subarray(0, 8), locks.kl.subarray(0, 8));
  whole.append(record("c", 2));
  const again = Trace.parse(whole.toDocument());
  assert.deepEqual(
    again.lanes.map(({ id, count, name }) => [id, count, name]),
    [
      ["a", 3, "All"],
      ["b", 3, "=Locks"],
      ["c", 3, "Child"],
    ],
  );
  assert.deepEqual(joined([0, 1, 2].map((t) => again.lane("c").row(t))), ["2 1 1 0", "3 2 1 1", "1 2 1 1"]);
});

test("a branch shows no likely tokens from before it as those of a later step: it leaves all to the server", () => {
  const whole = Trace.parse(small());
  const lane = whole.branch(contestant("c", "Child", { kind: "everything" }, { parent: "b" }), 2);
  whole.append(record("c", 2));
  assert.deepEqual([whole.lane("b").top(1, 2).length, lane.top(1, 1), lane.top(1, 2)], [5, null, null]);
});

test("a document names the parents that are in it", () => {
  const whole = Trace.parse(small());
  whole.branch(contestant("c", "Child", { kind: "everything" }, { parent: "b" }), 2);
  const parents = (trace) => Trace.parse(trace.toDocument()).lanes.map((lane) => lane.contestant.parent);
  assert.deepEqual(parents(whole), [null, null, "b"]);
  const alone = whole.withLanes([whole.lane("a"), whole.lane("c")]);
  assert.deepEqual(parents(alone), [null, null]);
  assert.equal(whole.lane("c").contestant.parent, "b");
});

test("lanes of several traces stand beside each other under their own names", () => {
  const other = Trace.parse(byHand());
  other.pieces.add({ 99: "x" });
  const sides = [
    { trace: other, lane: other.lanes[0], name: "By hand, run 2" },
    { trace, lane: locks, name: "Locks, run 1" },
  ];
  const beside = Trace.of(sides);
  const { contestants } = beside.toDocument().header;
  assert.deepEqual(
    contestants.map(({ id, name }) => [id, name]),
    [
      ["lane-1", "By hand, run 2"],
      ["lane-2", "Locks, run 1"],
    ],
  );
  assert.deepEqual(beside.lanes[1].row(2), locks.row(2));
  assert.deepEqual(beside.lanes[1].tokens(2), locks.tokens(2));
  assert.equal(beside.reference, beside.lanes[0]);
  assert.equal(beside.pieces.name(99), "x");
  assert.deepEqual(Trace.parse(beside.toDocument()).lanes[0].tokens(2), other.lanes[0].tokens(2));
  assert.ok(trace.like(other));
  assert.ok(!trace.like(Trace.parse({ ...small(), header: { ...small().header, prompt_tokens: [10, 12] } })));
});

test("a trace of version 1 opens", () => {
  const first = JSON.parse(readFileSync(new URL("../traces/version-1.json", import.meta.url), "utf-8"));
  const opened = Trace.parse(first);
  assert.deepEqual(
    opened.lanes.map(({ name, epsilon, count }) => [name, epsilon, count]),
    [
      ["Selection", NaN, 12],
      ["SureLock and selection", 0.05, 12],
    ],
  );
  const { compute, unmask, settings } = opened.lanes[1].contestant;
  assert.deepEqual([compute.select.fraction, compute.lock.unlock.period, unmask.p], [0.7, 2, 0.8]);
  assert.deepEqual(Object.keys(settings).includes("remasking"), false);
});

test("the check of the structure is the one made from the schema", () => {
  assert.equal(readFileSync(CHECK, "utf-8"), make(), "run `npm run schema`");
});

const first = (more) => ({ records: [record("b", 0, more)] });
const headed = (more) => ({ header: { ...small().header, ...more } });
const five = ["v", "w", "x", "y", "z"].map((id) => contestant(id, id, { kind: "everything" }));
const damages = [
  ["is not a SureLock trace", { format: "x" }],
  ["version 3", { version: 3 }],
  ["must have required property 'header'", { header: undefined }],
  ["at header/length", headed({ length: 0 })],
  ["too large", headed({ length: 8192, steps: 8192 })],
  ["prompt is longer", headed({ prompt_tokens: [1, 2, 3, 4, 5] })],
  ["at header/contestants: it must NOT have more than 4 items", headed({ contestants: five })],
  ["NOT have fewer than 1 items", headed({ contestants: [] })],
  ["required property 'name'", headed({ contestants: [{ ...five[0], name: undefined }] })],
  ["at header/contestants/0/name", headed({ contestants: [{ ...five[0], name: "" }] })],
  ["same id", headed({ contestants: [five[0], five[0]] })],
  ["is not there", headed({ reference: "nobody" })],
  ["is not there", headed({ contestants: [{ ...five[0], parent: "nobody" }] })],
  ["at pieces/1", { pieces: { 1: 2 } }],
  ["at pieces/1", { pieces: { 1: [256] } }],
  ["required property 'records'", { records: undefined }],
  ["no steps", { records: [] }],
  ["no contestant", { records: [record("other", 0)] }],
  ["in order", { records: [record("b", 1)] }],
  ["in order", { records: [0, 1, 2, 3].map((t) => record("b", t)) }],
  ["outside the sequence", first({ locked: [4] })],
  ["outside the sequence", first({ written: [[4, 1]] })],
  ["outside the sequence", first({ computed: [1, 4] })],
  ["outside the sequence", first({ computed: [2, 2, 0, 2] })],
  ["positions is incomplete", first({ computed: [0] })],
  ["number of KL values", first({ kl: [1] })],
  ["not base64", first({ confidence: "%" })],
  ["at records/0/unmasked/0", first({ unmasked: [7] })],
  ["at records/0/locked", first({ locked: null })],
  ["at records/0/seconds", first({ seconds: -1 })],
  ["number of likely tokens", first({ top: { at: [0, 1], ids: [1], p: base64(1) } })],
];

test("a damaged trace is refused in one sentence", () => {
  for (const [part, change] of damages)
    assert.throws(
      () => Trace.parse(JSON.parse(JSON.stringify({ ...small(), ...change }))),
      (error) => error instanceof TraceError && /^[A-Z][^.]+\.$/.test(error.message) && error.message.includes(part),
      JSON.stringify(change),
    );
});

test("what a page reads of a header is of its kind", () => {
  const spoilt = (change) => {
    const whole = JSON.parse(JSON.stringify(small()));
    change(whole.header, whole.header.contestants[0]);
    return whole;
  };
  const changes = [
    (header) => Object.assign(header, { prompt: 5 }),
    (header) => Object.assign(header, { prompt: {} }),
    (header) => Object.assign(header, { created: 5 }),
    (header) => Object.assign(header, { model: { name: {} } }),
    (_, own) => Object.assign(own.settings, { gen_length: {} }),
    (_, own) => Object.assign(own.settings, { temperature: { a: 1 } }),
    (_, own) => Object.assign(own.compute, { epsilon: {} }),
    (_, own) => Object.assign(own.compute, { unlock: { rho: {} } }),
  ];
  for (const change of changes) assert.throws(() => Trace.parse(spoilt(change)), TraceError, change.toString());
});
