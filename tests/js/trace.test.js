import assert from "node:assert/strict";
import test from "node:test";

import { sameText } from "../../assets/js/dom.js";
import { readTrace } from "../../assets/js/trace/reading.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { decoder, every, joined, lasting, pairs, raceOf, record, shown, small } from "./small.js";

const trace = readTrace(small());
const [, locks] = trace.lanes;

test("by the clock a lane that has ended is beside all of the reference, before that beside as many steps", () => {
  const quick = decoder("b", "Quick", { kind: "everything" }, { settings: { steps: 2 } });
  const records = small().records.filter(({ lane: id, step }) => id === "a" || step < 2);
  for (const each of records) if (each.lane === "b") Object.assign(each, { seconds: 0.75, flops: 30 });
  const header = { ...small().header, lanes: [small().header.lanes[0], quick] };
  const raced = shown(readTrace({ ...small(), header, records }), { byClock: true });
  const told = (lane, step) => {
    const { flopsShare, everyShare, against, steps, seconds } = raced.totals(raced.lane(lane), step);
    assert.equal(everyShare, lane === "a" ? 1 : 0.3, "of its own steps alone");
    return { flopsShare, against, steps, seconds };
  };
  assert.deepEqual(told("b", 0), { flopsShare: 0.3, against: 1, steps: 1, seconds: 0.75 });
  const end = { flopsShare: 60 / 300, against: 3, steps: 2, seconds: 1.5 };
  assert.deepEqual([told("b", 1), told("b", 2)], [end, end]);
  assert.deepEqual(told("a", 1), { flopsShare: 1, against: 2, steps: 2, seconds: 2 });
  raced.race.byClock = false;
  assert.deepEqual(told("b", 1), { ...end, flopsShare: 60 / 200, against: 2 });
  assert.deepEqual(told("b", 2), end);
});

test("a lane that looks again at what it wrote ends with a step that wrote nothing, and not before", () => {
  const steps = [{ unmasked: pairs(2, 12, 3, 13) }, {}, { taken_back: [3], unmasked: pairs(3, 14) }, {}];
  const lane = (kind, count) => {
    const own = every("a", steps.slice(0, count), { unmask: { kind, times: 5 } });
    return Trace.parse(raceOf([own])).lanes[0];
  };
  const ends = (kind) => [1, 2, 3, 4].map((count) => lane(kind, count).endsAt(count - 1));
  assert.deepEqual(ends("correct"), [false, true, false, true]);
  assert.deepEqual(ends("threshold"), [true, true, true, true]);
  assert.deepEqual([lane("correct", 4).most, lane("remask", 4).most, lane("threshold", 4).most], [28, 8, 4]);
});

test("what two texts share is counted in words", () => {
  const compared = (mine, theirs) => {
    const pieces = { 0: "end", 1: " a", 2: " cat", 3: "s", 4: ",", 5: " dog" };
    const header = { ...small().header, prompt_tokens: [], length: 4, eos_id: 0, ends: [0, 6] };
    const of = (tokens) => ({ clamp: (t) => t, token: (p) => tokens[p] ?? -1 });
    return new Trace({ header, pieces }).sameText(of(mine), of(theirs), 0);
  };
  const same = (mine, theirs, words, whole) => {
    const found = compared(mine, theirs);
    assert.deepEqual([found.words, found.whole], [words, whole], `${mine} and ${theirs}`);
  };
  same([1, 2, 4, 5], [1, 2, 4, 5], 3, true);
  same([1, 2, 0, 5], [1, 2, 0, 1], 2, true);
  same([1, 2, 6, 5], [1, 2, 0, 1], 2, true); // each of two ends
  same([1, 2, 4, 5], [1, 2, 5, 1], 2, false);
  same([1, 2, 3, 5], [1, 2, 5, 1], 1, false);
  same([1, 2, 0], [1, 2, 3], 1, false);
  same([1, 5], [2, 5], 0, false);
  same([], [], 0, false);
  same([1], [1], 1, false);
  const told = (mine, theirs, open, text) => {
    const found = compared(mine, theirs);
    assert.deepEqual([found.open, sameText(found)], [open, text], `${mine} and ${theirs}`);
  };
  told([], [1], true, "nothing to compare yet");
  told([1], [], true, "nothing to compare yet");
  told([1], [1], true, "the same text for the first word");
  told([1, 5], [2, 5], false, "another text from the first word");
  told([1, 0], [1, 0], false, "the same text");
});

test("commit errors come with the records or after them, and add up from step to step", () => {
  const document = small();
  const errors = (lane) =>
    document.records.filter(({ lane: own }) => own === lane).map(({ unmasked }) => unmasked.map(() => 0.25));
  const later = readTrace(document);
  assert.equal(later.totals(later.lane("b"), 2).damage, null);
  later.lane("b").score(errors("b"), [[2], [], []], [0.5, 0.25, 0]);
  const told = [0, 2].map((t) => later.totals(later.lane("b"), t).damage);
  const count = document.records.filter(({ lane: own }) => own === "b").flatMap(({ unmasked }) => unmasked).length;
  assert.deepEqual(told[1], { commits: count, nats: count / 4, mean: 0.25, changed: 1, regret: 0.75 });
  assert.equal(told[0].changed, 1);
  const again = readTrace(later.toDocument());
  assert.deepEqual(
    [0, 2].map((t) => again.totals(again.lane("b"), t).damage),
    told,
  );
  const damaged = later.toDocument();
  damaged.records.find(({ commit_error: list }) => list?.length).commit_error.push(1);
  assert.throws(() => readTrace(damaged), /commit errors/);
});

test("a branch has its parent's first steps, in every way", () => {
  const whole = readTrace(small());
  const child = decoder(
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
  const again = readTrace(whole.toDocument());
  const told = again.lanes.map(({ id, count, name }) => [id, count, name]);
  assert.deepEqual(joined(told), ["a 3 All", "b 3 =Locks", "c 3 Child"]);
  assert.deepEqual(joined([0, 1, 2].map((t) => again.lane("c").row(t))), ["1 1 1 0", "3 1 1 1", "1 1 1 1"]);
});

test("a branch shows no likely tokens from before it as those of a later step: it leaves all to the server", () => {
  const whole = readTrace(small());
  const lane = whole.branch(decoder("c", "Child", { kind: "everything" }, { parent: "b" }), 2);
  whole.append(record("c", 2));
  assert.deepEqual([whole.lane("b").top(1, 2).length, lane.top(1, 1), lane.top(1, 2)], [5, null, null]);
  assert.deepEqual(whole.lane("b").top(1, 0), [], "none were listed yet");
});

test("a trace says which engine computed its lanes and where they were timed; a lane of another engine brings its own", () => {
  const by = (engine, machine) => {
    const document = small();
    Object.assign(document.header, { engine, timed_together: [{ lanes: ["a", "b"], machine }] });
    return readTrace(document);
  };
  const one = by("torch 2.13.0", "A");
  const written = one.toDocument().header;
  assert.deepEqual([written.engine, written.timed_together], ["torch 2.13.0", [{ machine: "A", lanes: ["a", "b"] }]]);
  const child = one.branch(decoder("c", "Child", { kind: "everything" }, { parent: "b" }), 1);
  one.computed(child, "onnxruntime 1.32.0");
  assert.equal(one.toDocument().header.lanes[2].engine, "onnxruntime 1.32.0");
  one.computed(child, "torch 2.13.0");
  assert.equal(one.toDocument().header.lanes[2].engine, undefined);
});

const made = (sides, more) => readTrace(raceOf(sides, more));
/** Lanes whose steps take so long, shown by the clock. */
const timed = (...lists) => shown(made(lists.map((list, i) => every("abc"[i], lasting(...list)))), { byClock: true });

test("a text of which nothing was to be written is open", () => {
  const whole = made([every("a", [{}]), every("b", [{}])], { prompt: [2, 3, 4, 5] });
  assert.deepEqual(whole.sameText(...whole.lanes, 0), { words: 0, whole: false, open: true });
});

test("an epsilon without bounds is infinite, and a pair's is its lock's", () => {
  const epsilon = (compute) => made([[decoder("a", "a", compute), [{}]]]).lanes[0].epsilon;
  const lock = { kind: "lock", epsilon: "inf" };
  assert.deepEqual([epsilon(lock), epsilon({ kind: "both", lock, select: { kind: "select" } })], [Infinity, Infinity]);
});

test("a step without commit errors or regret leaves those after it without a sum, and one without changes has none", () => {
  const wrote = { unmasked: [[2, 12]] };
  const damage = (first) =>
    made([
      every("a", [
        { ...wrote, ...first },
        { unmasked: [[3, 13]], commit_error: [0.5], regret: 0.25 },
      ]),
    ]).lanes[0].steps[1].damage;
  assert.equal(damage({}), undefined);
  assert.deepEqual(damage({ commit_error: [null] }), { commits: 2, nats: 0.5, mean: 0.25, changed: 0, regret: null });
});

test("totals beside a reference that has no step yet say nothing of it", () => {
  const whole = new Trace(small());
  whole.append(record("b", 0));
  const { flopsShare, against } = whole.totals(whole.lane("b"), 0);
  assert.deepEqual([flopsShare, against], [NaN, NaN]);
});

test("the front is of the lanes that still grow", () => {
  const whole = timed([1, 1, 1], [1]);
  whole.race.byClock = false;
  whole.race.growing = [whole.lanes[1]];
  assert.equal(whole.race.front, 2);
  whole.race.live = true;
  assert.equal(whole.race.front, 0);
  const part = shown(new Trace(small()), { byClock: true, live: true });
  part.append(record("a", 0, { seconds: 0 }));
  assert.equal(part.race.front, 0, "where nothing took time, all that there is");
  const mixed = timed([2, 2, 2, 2], [1, 1, 1, 1], [9, 9, 9, 9]);
  for (const lane of mixed.lanes) lane.decoder.settings.steps = 9;
  mixed.lanes[2].timing = null;
  Object.assign(mixed.race, { live: true, growing: [mixed.lanes[2]] });
  mixed.race.growing[0].count = 2;
  assert.equal(mixed.race.front, 1, "one without a clock is at its own step");
});

test("a document has its view and its lanes, and whatever it was made of", () => {
  const view = { step: 2, pins: [3], byClock: true };
  const document = trace.toDocument(undefined, undefined, view);
  assert.deepEqual(document.view, { step: 2, pins: [3], by_clock: true });
  assert.deepEqual([readTrace(document).view, readTrace(small()).view], [view, null]);
  assert.ok(!("view" in trace.toDocument()));
  const parsed = small();
  for (const { source } of readTrace(parsed).lanes) assert.deepEqual(source, { document: parsed });
  const names = ({ header }) => header.lanes.map(({ id }) => id);
  assert.deepEqual(names(trace.withLanes([locks])), ["b"]);
  assert.equal(Object.assign(readTrace(small()), { key: "kept" }).withLanes([]).key, null, "it is kept as another run");
  const whole = readTrace(small());
  whole.branch(decoder("c", "Child", { kind: "everything" }), 0);
  assert.deepEqual(names(whole), ["a", "b", "c"]);
});
