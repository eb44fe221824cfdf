import assert from "node:assert/strict";
import test from "node:test";
import { lookedAt } from "../../assets/js/curves/inspector.js";
import { heading, stepsAfter, told } from "../../assets/js/export/poster.js";
import { narrate, spokenCell } from "../../assets/js/stage/narrator.js";
import { summary } from "../../assets/js/stage/spoken.js";
import { verdict, verdictOf } from "../../assets/js/stage/verdict.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { decoder, every, lasting, longer, pairs, raceOf, record, shown, small } from "./small.js";

/** `small` or such a document, its second lane's steps of this length, with commit errors where they are given. */
function raced({ seconds = 0.5, errors = null, records = small().records, document = { ...small(), records } } = {}) {
  for (const each of document.records.filter(({ lane: own }) => own === "b")) {
    each.seconds = seconds;
    if (errors !== null)
      Object.assign(each, { commit_error: each.unmasked.map(() => errors), changed: each.unmasked.map(([p]) => p) });
  }
  return Trace.parse(document);
}

test("the verdict joins the work, the time if it can be told, what skipping changed, and the text", () => {
  const told = ({ errors = null, ...options }) => {
    const trace = raced({ document: longer(small(), { b: { flops: 80 } }), ...options });
    if (errors !== null) trace.lane("b").steps.at(-1).damage = { changed: errors, commits: 2 };
    const said = verdict(trace);
    assert.equal(narrate(trace, 19), said);
    assert.ok(said.match(/\p{L}+/gu).length <= 30, "a sentence or two");
    return said;
  };
  const start = "“=Locks”: 20 % less work";
  const text = "rom word 2 after the prompt on, another text.";
  assert.equal(told({ seconds: 0.5 }), `${start}, 50 % less time. F${text}`);
  const alike = "time: no difference to be seen here (20.0 s and 20.4 s, one run each)";
  assert.equal(told({ seconds: 1.02 }), `${start}, ${alike}. F${text}`);
  assert.equal(told({ seconds: 2 }), `${start}, 100 % more time. F${text}`);
  assert.equal(told({ errors: 1 }), `${start}, 50 % less time. Skipping changed 1 of 2 choices; f${text}`);
  const none = `${start}, 50 % less time. Skipping changed none of 2 choices, only their order; f${text}`;
  assert.equal(told({ errors: 0 }), none);
  const noisy = longer(small(), { b: { flops: 80 } });
  noisy.header.lanes[1].settings.temperature = 0.5;
  const trace = raced({ document: noisy });
  trace.lane("b").steps.at(-1).damage = { changed: 0, commits: 2 };
  assert.match(verdict(trace), /none of 2 choices, only the draw or the order; from word/);
  trace.lanes[1].timing = null;
  assert.doesNotMatch(verdict(trace), /time/, "no time where they were not timed together");
});

test("a screen reader is not told how a lane that is alone compares with itself", () => {
  const trace = raced();
  assert.match(summary(trace, 2), /of All so far, the same text for the first word\.$/);
  assert.match(summary(trace.withLanes([trace.lane("b")]), 2), /computation of computing every position so far\.$/);
});

test("what a choice looked at was locked before its step, not by it", () => {
  const trace = raced();
  const list = [
    [1, 0.5],
    [0, 0.25],
  ];
  const said = "Among the tokens already written, this prediction attended most to “upon” 50 %, “Once” 25 % (locked).";
  assert.equal(lookedAt(trace, trace.lane("b"), 1, list), said);
  assert.equal(lookedAt(trace, trace.lane("b"), 0, [...list, ...list, ...list]).match(/“/g).length, 4, "at most");
  assert.equal(lookedAt(trace, trace.lane("b"), 0, []), "");
});

test("of a run that was stopped the verdict does not say how the texts go on", () => {
  const stopped = raced({ records: small().records.filter(({ step }) => step === 0) });
  assert.match(verdict(stopped), /Up to here they share 1 word after the prompt\.$/);
  assert.match(told(stopped, [0, 0]), /^Step 1: “=Locks” writes/);
  const { clock, told: done, done: share } = heading(stopped, stopped.lane("b"), 0);
  assert.deepEqual([clock, share], ["0.50 s", 1 / 3]);
  assert.match(done, /% of all FLOPs, 0 of 4 locked, step 1 \/ 3$/);
  const whole = raced();
  assert.deepEqual(heading(whole, whole.lane("b"), -1), { clock: "0.00 s", told: "step 0 / 3", done: 0 });
  assert.equal(told(whole, [2, 2]), verdict(whole));
});

test("a picture tells of the steps that it shows, whatever the clock of the page says", () => {
  const trace = raced();
  trace.race.byClock = true;
  assert.deepEqual(stepsAfter(trace, 1.2), [0, 1]);
  assert.match(told(trace, [0, 1]), /^Step 2 of “=Locks”: it writes/);
  assert.equal(told(trace, [1, 2]), "“=Locks” has finished; “All” is still at work.");
});

test("by the clock each sentence has its lane's own step, and says whose", () => {
  const document = small();
  document.header.steps = 4;
  for (const each of document.header.lanes) each.settings.steps = 4;
  document.records.push(record("a", 3), record("b", 3));
  for (const each of document.records) each.seconds = each.lane === "a" ? 1 : 0.5;
  const apart = Trace.parse(document);
  assert.equal(apart.race.whose, "");
  assert.match(summary(apart, 1), /^Step 2 of 4\. =Locks: /);
  apart.race.byClock = true;
  assert.equal(apart.race.whose, "“All”");
  assert.match(narrate(apart, 0), /^Step 2 of “=Locks”: it writes/);
  assert.match(
    narrate(apart, 0, [{ step: 0, at: 1, name: "Half locked", stop: true }]),
    /^Step 2 of “=Locks”: half of/,
  );
  assert.match(summary(apart, 0), /^Step 1 of 4 of “All”\. =Locks, step 2: /);
  assert.equal(apart.withLanes([apart.lanes[1]]).race.whose, "");
  assert.equal(apart.race.done, "step 4");
  apart.lanes[1].count = 2;
  assert.equal(apart.race.done, "step 4 of “All”, step 2 of “=Locks”");
});

test("of several who are through the time is the first one's, and all who are through or still work are named", () => {
  const raced = (...seconds) => {
    const steps = (own) => [0, 1, 2].map((t) => ({ seconds: own, unmasked: t ? [] : [[2, 12]] }));
    return shown(Trace.parse(raceOf(seconds.map((own, i) => every("ABC"[i], steps(own))))), { byClock: true });
  };
  assert.equal(narrate(raced(1, 0.6, 0.3), 1), "“B” and “C” have finished after 0.90 s; “A” is still at work.");
  assert.equal(narrate(raced(1, 0.3, 0.6), 1), "“B” and “C” have finished after 0.90 s; “A” is still at work.");
  assert.equal(narrate(raced(1, 0.3, 0.6), 0), "“B” has finished after 0.90 s; “A” and “C” are still at work.");
  assert.match(
    narrate(raced(1, 0.6, 0.3), 0),
    /^Step 1\b.*writes “=a”/,
    "of the lane that still works its step is told",
  );
});

/** What is told of each step of a lane that computes everything, beside another one. */
function tale(steps, { compute = { kind: "lock", epsilon: 1 }, events = [], chapters = [], ...more } = {}) {
  const all = [decoder("a", "All", { kind: "everything" }), steps.map(() => ({}))];
  const trace = Trace.parse(raceOf([all, [decoder("b", "B", compute, { events }), steps]], more));
  return steps.map((_, t) => narrate(trace, t, chapters));
}

test("a step that computes masked tokens says so, and one that leaves them out does not", () => {
  const rows = { kl: [1, 1], confidence: [1, 1] };
  const [prompt, masks] = tale([{ computed: [0, 2], ...rows }, { computed: [2, 2], ...rows }, {}]);
  assert.match(prompt, /computes 2 of 4 tokens; 2 are left out/);
  assert.match(masks, /computes 2 of 4 tokens, the masked among them; 2 are left out/);
});

test("after the rule was changed by hand nothing is said to have settled", () => {
  const steps = [{ unmasked: [[2, 12]] }, { locked: [2] }, {}];
  const rule = { step: 1, kind: "rule", compute: { kind: "everything" } };
  assert.match(tale(steps)[1], /has settled/);
  assert.doesNotMatch(tale(steps, { events: [rule] })[1], /has settled/);
  const lock = { kind: "lock", epsilon: 1 };
  assert.match(tale(steps, { compute: { kind: "both", lock, select: { kind: "select" } } })[1], /has settled/);
});

test("the verdict of several lanes is the work of each beside the reference", () => {
  const work = { A: [100, 100], B: [100, 50], C: [30, 10] };
  const steps = (list) => list.map((flops) => ({ flops }));
  const trace = Trace.parse(raceOf(Object.entries(work).map(([id, list]) => every(id, steps(list)))));
  assert.match(verdict(trace), /^“B”: 25 % less work, time: .*\. “C”: 80 % less work/);
});

test("by the clock a lane that has not finished its first step is still all blanks", () => {
  const lanes = [every("a", lasting(1, 1, 1)), every("b", lasting(1.5, 0.1, 0.1))];
  const trace = shown(Trace.parse(raceOf(lanes)), { byClock: true });
  assert.match(narrate(trace, 0), /^After the prompt/);
});

test("a summary tells of each lane beside the reference, of those that have begun", () => {
  const wrote = { unmasked: pairs(2, 12, 3, 12), locked: [2] };
  const lane = (id, seconds, more = {}) => every(id, [{ seconds, ...wrote, ...more }, { seconds }]);
  const trace = Trace.parse(raceOf([lane("A", 1), lane("B", 1, { flops: 50 }), lane("C", 3)]));
  trace.lanes[1].steps[0].damage = { changed: 1, commits: 2, mean: 0.5 };
  const b =
    "B: 0 of 4 tokens locked, 50 % of the computation of A so far, 1 of 2 choices changed by skipping rows, the same text.";
  assert.equal(summary(trace, -1), "");
  assert.equal(
    summary(trace, 0),
    `Step 1 of 2. ${b} C: 0 of 4 tokens locked, 100 % of the computation of A so far, the same text.`,
  );
});

test("more work than the reference's says why", () => {
  const steps = (count, more = {}) => new Array(count).fill({ flops: 100, ...more });
  const longer = Trace.parse(raceOf([every("A", steps(2)), every("B", steps(4))]));
  const at = longer.count - 1;
  const { work, why } = verdictOf(longer, longer.lanes[1], at);
  assert.deepEqual([work, why], ["100 % more work", "it takes 4 steps instead of 2"]);
  const idle = Trace.parse(raceOf([every("A", steps(2, { flops: 50 })), every("B", steps(2))]));
  assert.equal(verdictOf(idle, idle.lanes[1], 1).why, "“A” leaves out more");
});

test("a sentence belongs to the cell that it speaks of first", () => {
  const trace = Trace.parse(small());
  const [, locks] = trace.lanes;
  for (let step = 0; step < 2; step++) {
    const spoken = spokenCell(trace, step);
    const word = trace.word(locks.token(spoken.cell, step));
    assert.equal(spoken.lane, locks);
    assert.ok(narrate(trace, step).includes(word), `${narrate(trace, step)}: ${word}`);
  }
  assert.equal(spokenCell(trace, -1), null);
  assert.equal(spokenCell(trace, 2), null, "the verdict is of no cell");
});
