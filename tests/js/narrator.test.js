import assert from "node:assert/strict";
import test from "node:test";

import { lookedAt } from "../../assets/js/attended.js";
import { narrate, subject, verdict } from "../../assets/js/narrator.js";
import { heading, stepsAfter, told } from "../../assets/js/poster.js";
import { summary } from "../../assets/js/spoken.js";
import { Store } from "../../assets/js/store.js";
import { Tab } from "../../assets/js/tab.js";
import { Trace } from "../../assets/js/trace.js";
import { byHand, contestant, record, small } from "./small.js";

/** `small`, its second lane's steps of this length, with commit errors where they are given. */
function raced({ seconds = 0.5, errors = null, records = small().records } = {}) {
  const document = { ...small(), records };
  for (const each of document.records.filter(({ contestant: own }) => own === "b")) {
    each.seconds = seconds;
    if (errors !== null)
      Object.assign(each, { commit_error: each.unmasked.map(() => errors), changed: each.unmasked.map(([p]) => p) });
  }
  return Trace.parse(document);
}

test("before the first step, and while it writes", () => {
  const trace = raced();
  assert.match(narrate(trace, -1), /^Every position after the prompt is masked/);
  assert.equal(narrate(trace, 0), "Step 1: “=Locks” writes “=a”, and computes 4 of 4 positions; 1 are locked.");
  assert.equal(subject(trace).id, "b");
  assert.equal(subject(trace.withLanes([trace.lane("a")])).id, "a");
});

test("what locks is told with how long it stood", () => {
  const steps = small();
  steps.header.steps = 4;
  for (const each of steps.header.contestants) each.settings.steps = 4;
  steps.records.push(record("a", 3), record("b", 3));
  const trace = Trace.parse(steps);
  assert.equal(
    narrate(trace, 2),
    "Step 3: “=a” was written 2 steps ago and has come to rest, so it is locked and no longer computed, the first word to be.",
  );
});

test("what locks by age, or by hand, is not said to have come to rest", () => {
  const said = (change) => {
    const steps = small();
    steps.header.steps = 4;
    for (const each of steps.header.contestants) each.settings.steps = 4;
    Object.assign(steps.header.contestants[1], change);
    steps.records.push(record("a", 3), record("b", 3));
    return narrate(Trace.parse(steps), 2);
  };
  const plain = /“=a” was written 2 steps ago and is locked and no longer computed/;
  assert.match(said({ compute: { kind: "age", steps: 2 } }), plain);
  assert.match(said({ events: [{ step: 2, kind: "lock", position: 2 }] }), plain);
  assert.match(said({ events: [{ step: 2, kind: "lock", position: 3 }] }), /has come to rest/);
});

test("the verdict has both subjects, and says when it was slower", () => {
  const told = (options) => verdict(raced(options));
  const start = "“=Locks” did 80 % of the work of “All”";
  const text = "It wrote the same text for the first word, then another.";
  assert.equal(told({ seconds: 0.5 }), `${start}, 2.0 times as fast. ${text}`);
  assert.equal(told({ seconds: 1.02 }), `${start}, in about the same time. ${text}`);
  assert.equal(
    told({ seconds: 2 }),
    `${start}, and took 2.0 times as long: here deciding what to leave out costs more than it saves. ${text}`,
  );
  assert.equal(
    told({ errors: 0.25 }),
    `${start}, 2.0 times as fast. ${text} Leaving rows out changed the likeliest word at 2 of 2 choices (commit error 0.25 nats).`,
  );
  assert.match(told({ errors: 0 }), /Nothing was left out that a choice could depend on\.$/);
  const trace = raced();
  assert.equal(narrate(trace, 2), verdict(trace));
  trace.lanes[1].source = { run: "another" };
  assert.match(verdict(trace), /did 80 % of the work of “All”; they were not timed side by side\./);
});

test("who ends early by leaving nothing out is not said to decide what to leave out", () => {
  const steps = small();
  steps.header.contestants[1] = contestant("b", "Quick", { kind: "everything" }, { settings: { steps: 2 } });
  steps.records = steps.records.filter((each) => each.contestant === "a" || each.step < 2);
  for (const each of steps.records) if (each.contestant === "b") Object.assign(each, { flops: 100, seconds: 5 });
  assert.match(verdict(Trace.parse(steps)), /did 67 % of the work of “All”, and took 3\.3 times as long\. /);
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
  const said = "Of the words that stood, this choice looked most at “upon” 50 %, “Once” 25 % (locked).";
  assert.equal(lookedAt(trace, trace.lane("b"), 1, list), said);
});

test("of a run that was stopped the verdict does not say how the texts go on", () => {
  const stopped = raced({ records: small().records.filter(({ step }) => step === 0) });
  assert.match(verdict(stopped), /It wrote the same text for the first word\.$/);
  assert.match(told(stopped, [0, 0]), /^Step 1: “=Locks” writes/);
  const { clock, told: done, done: share } = heading(stopped, stopped.lane("b"), 0);
  assert.deepEqual([clock, share], ["0.50 s", 1 / 3]);
  assert.match(done, /% of the FLOPs of its steps, 1 of 4 locked, step 1 \/ 3$/);
  const whole = raced();
  assert.deepEqual(
    [heading(whole, whole.lane("b"), 2).clock, heading(whole, whole.lane("b"), 2).done],
    ["1.50 s ✓", 1],
  );
});

test("a picture tells of the steps that it shows, whatever the clock of the page says", () => {
  const trace = raced();
  trace.byClock = true;
  assert.deepEqual(stepsAfter(trace, 1.2), [0, 1]);
  assert.match(told(trace, [0, 1]), /^Step 2: “=Locks” writes/);
  assert.equal(told(trace, [1, 2]), "“=Locks” has finished; “All” still works.");
});

test("a lane alone is told beside computing everything", () => {
  const trace = Trace.parse(byHand());
  assert.match(verdict(trace), /^“By hand” did \d+ % of the work of computing everything\.$/);
  const every = raced();
  assert.equal(verdict(every.withLanes([every.lane("a")])), "“All” computed every position.");
});

test("a lane that ended sooner waits for the other", () => {
  const { header, records, ...rest } = small();
  header.contestants[1] = contestant(
    "b",
    "Quick",
    { kind: "lock", epsilon: 0.01 },
    { settings: { gen_length: 2, steps: 2 } },
  );
  const trace = Trace.parse({
    ...rest,
    header,
    records: records.filter((each) => each.contestant === "a" || each.step < 2),
  });
  assert.match(verdict(trace), /^“Quick” did/);
  const unfinished = Trace.parse({
    ...rest,
    header: {
      ...header,
      steps: 4,
      contestants: [contestant("a", "All", { kind: "everything" }, { settings: { steps: 4 } }), header.contestants[1]],
    },
    records: [...records.filter((each) => each.contestant === "a" || each.step < 2), record("a", 3)],
  });
  assert.equal(narrate(unfinished, 2), "“Quick” has finished; “All” still works.");
});

test("a run too large to be kept costs none that is", () => {
  const kept = new Map();
  const storage = {
    getItem: (name) => kept.get(name) ?? null,
    setItem: (name, text) => kept.set(name, text),
    removeItem: (name) => kept.delete(name),
  };
  const problems = [];
  const store = new Store({ onProblem: (text) => problems.push(text), tab: new Tab(storage) });
  store.keep("small", "live", { a: 1 });
  store.keep("large", "opened", { a: "x".repeat(4_000_000) });
  assert.deepEqual(
    store.runs().map(({ id }) => id),
    ["small"],
  );
  assert.deepEqual(problems, ["This run is too large to be kept for a reload: export it to keep it."]);
});
