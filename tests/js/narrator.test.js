import assert from "node:assert/strict";
import test from "node:test";
import { lookedAt } from "../../assets/js/cause/inspector.js";
import { from } from "../../assets/js/cause/whatif.js";
import { heading, stepsAfter, told } from "../../assets/js/export/poster.js";
import { narrate, ordinal, subject, verdict } from "../../assets/js/stage/narrator.js";
import { gridName, summary } from "../../assets/js/stage/spoken.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { byHand, decoder, longer, pairs, raceOf, record, shown, small } from "./small.js";

/** `small` or such a document, its second lane's steps of this length, with commit errors where they are given. */
function raced({ seconds = 0.5, errors = null, records = small().records, document = { ...small(), records } } = {}) {
  for (const each of document.records.filter(({ lane: own }) => own === "b")) {
    each.seconds = seconds;
    if (errors !== null)
      Object.assign(each, { commit_error: each.unmasked.map(() => errors), changed: each.unmasked.map(([p]) => p) });
  }
  return Trace.parse(document);
}

test("before the first step, and while it writes", () => {
  const trace = raced();
  assert.match(narrate(trace, -1), /^After the prompt every word is a blank, called masked\. The blanks will be/);
  assert.equal(narrate(trace, 0), "Step 1: “=Locks” writes “=a”, and computes 4 of 4 words; 1 is locked.");
  assert.equal(subject(trace).id, "b");
  assert.equal(subject(trace.withLanes([trace.lane("a")])).id, "a");
});

test("what locks is told with how long it stood", () => {
  const steps = small();
  steps.header.steps = 4;
  for (const each of steps.header.lanes) each.settings.steps = 4;
  steps.records.push(record("a", 3), record("b", 3));
  const trace = Trace.parse(steps);
  assert.equal(
    narrate(trace, 2),
    "Step 3: “=a” was written 2 steps ago and has come to rest, so it is locked, the first word that is no longer computed.",
  );
});

test("what locks by age, or by hand, is not said to have come to rest", () => {
  const said = (change) => {
    const steps = small();
    steps.header.steps = 4;
    for (const each of steps.header.lanes) each.settings.steps = 4;
    Object.assign(steps.header.lanes[1], change);
    steps.records.push(record("a", 3), record("b", 3));
    return narrate(Trace.parse(steps), 2);
  };
  const plain = /“=a” was written 2 steps ago and is locked, the first word that is no longer computed/;
  assert.match(said({ compute: { kind: "age", steps: 2 } }), plain);
  assert.match(said({ events: [{ step: 2, kind: "lock", position: 2 }] }), plain);
  assert.match(said({ events: [{ step: 2, kind: "lock", position: 3 }] }), /has come to rest/);
});

test("the verdict has both subjects, and says when it was slower", () => {
  const long = (options) => raced({ document: longer(small(), { b: { flops: 80 } }), ...options });
  const told = (options) => verdict(long(options));
  const start = "“=Locks” did 80 % of the work of “All”";
  const text = "From the 2nd word on it tells another story.";
  assert.equal(told({ seconds: 0.5 }), `${start} in 50 % of the time. ${text}`);
  assert.equal(told({ seconds: 1.02 }), `${start}; times too close to tell. ${text}`);
  assert.equal(told({ seconds: 2 }), `${start} in 200 % of the time. ${text}`);
  const named = longer(small(), { b: { flops: 80 } });
  named.header.lanes[0].name = "Every position";
  for (const seconds of [0.5, 1.02])
    assert.ok(
      verdict(raced({ document: structuredClone(named), seconds })).split(" ").length <= 25,
      "at most 25 words",
    );
  assert.deepEqual([1, 2, 3, 4, 11, 12, 21, 112].map(ordinal), [
    "1st",
    "2nd",
    "3rd",
    "4th",
    "11th",
    "12th",
    "21st",
    "112th",
  ]);
  const trace = long();
  assert.equal(narrate(trace, 19), verdict(trace));
  trace.lanes[1].timing = null;
  assert.equal(verdict(trace), `${start}. ${text}`, "no time where they were not timed together");
});

test("who ends early by leaving nothing out is not said to decide what to leave out", () => {
  const steps = longer(small());
  steps.header.lanes[1] = decoder("b", "Quick", { kind: "everything" }, { settings: { steps: 18 } });
  steps.records = steps.records.filter((each) => each.lane === "a" || each.step < 18);
  for (const each of steps.records) if (each.lane === "b") Object.assign(each, { flops: 100, seconds: 5 });
  assert.match(verdict(Trace.parse(steps)), /did 90 % of the work of “All” in 450 % of the time\. /);
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
  const said = "Among the words already written, this prediction attended most to “upon” 50 %, “Once” 25 % (locked).";
  assert.equal(lookedAt(trace, trace.lane("b"), 1, list), said);
});

test("of a run that was stopped the verdict does not say how the texts go on", () => {
  const stopped = raced({ records: small().records.filter(({ step }) => step === 0) });
  assert.match(verdict(stopped), /Up to here they share 1 word\.$/);
  assert.match(told(stopped, [0, 0]), /^Step 1: “=Locks” writes/);
  const { clock, told: done, done: share } = heading(stopped, stopped.lane("b"), 0);
  assert.deepEqual([clock, share], ["0.50 s", 1 / 3]);
  assert.match(done, /% of all FLOPs, 1 of 4 locked, step 1 \/ 3$/);
  const whole = raced();
  assert.deepEqual(heading(whole, whole.lane("b"), -1), { clock: "0.00 s", told: "step 0 / 3", done: 0 });
  assert.match(heading(whole, whole.lane("b"), 1).told, /^90 % of all FLOPs, 1 of 4 locked, step 2/);
  assert.equal(told(whole, [2, 2]), verdict(whole));
  assert.deepEqual(
    [heading(whole, whole.lane("b"), 2).clock, heading(whole, whole.lane("b"), 2).done],
    ["1.50 s ✓", 1],
  );
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
  assert.match(
    from(apart.lanes[1], apart.race.reached(apart.lanes[1], 1)),
    /has done its step 2\. From its step 3 on,/,
  );
  apart.race.byClock = true;
  assert.equal(apart.race.whose, "“All”");
  assert.match(narrate(apart, 0), /^Step 2 of “=Locks”: it writes/);
  assert.match(narrate(apart, 0, [{ step: 0, text: "so it is." }]), /^Step 2 of “=Locks”: so it is\.$/);
  assert.match(summary(apart, 0), /^Step 1 of 4 of “All”\. =Locks, step 2: /);
  const whatIf = (step) => from(apart.lanes[1], apart.race.reached(apart.lanes[1], step));
  assert.match(whatIf(0), /^“=Locks” has done its step 2\. From its step 3 on,/);
  assert.match(whatIf(-1), /^“=Locks” has done no step yet\. From its step 1 on,/);
  assert.match(whatIf(3), /^“=Locks” is at its end/);
  assert.equal(apart.withLanes([apart.lanes[1]]).race.whose, "");
  assert.equal(apart.race.done, "step 4");
  apart.lanes[1].count = 2;
  assert.equal(apart.race.done, "step 4 of “All”, step 2 of “=Locks”");
});

test("a lane alone is told beside computing everything", () => {
  const trace = Trace.parse(byHand());
  assert.match(verdict(trace), /^“By hand” did \d+ % of the work of computing everything\.$/);
  const every = raced();
  assert.equal(verdict(every.withLanes([every.lane("a")])), "“All” computed everything.");
});

test("a lane that ended sooner waits for the other", () => {
  const { header, records, ...rest } = small();
  header.lanes[1] = decoder("b", "Quick", { kind: "lock", epsilon: 0.01 }, { settings: { gen_length: 2, steps: 2 } });
  const trace = Trace.parse({
    ...rest,
    header,
    records: records.filter((each) => each.lane === "a" || each.step < 2),
  });
  assert.match(verdict(trace), /^“Quick” did/);
  const unfinished = Trace.parse({
    ...rest,
    header: {
      ...header,
      steps: 4,
      lanes: [decoder("a", "All", { kind: "everything" }, { settings: { steps: 4 } }), header.lanes[1]],
    },
    records: [...records.filter((each) => each.lane === "a" || each.step < 2), record("a", 3)],
  });
  assert.equal(narrate(unfinished, 2), "“Quick” has finished; “All” is still at work.");
});

test("of several who are through the time is the first one's, and all who are through or still work are named", () => {
  const raced = (...seconds) => {
    const lane = (id, own) => [
      decoder(id, id.toUpperCase(), { kind: "everything" }),
      [0, 1, 2].map((t) => ({ seconds: own, unmasked: t ? [] : [[2, 12]] })),
    ];
    return shown(Trace.parse(raceOf(["a", "b", "c"].map((id, i) => lane(id, seconds[i])))), { byClock: true });
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

test("the first word to lock is told as that, the prompt's locks aside", () => {
  const pieces = { 20: " tale", 21: ",", 22: "s" };
  const wrote = { unmasked: pairs(2, 20, 3, 22) };
  const said = tale([{}, wrote, { locked: [0, 1] }, { locked: [2] }, { locked: [3] }, {}], { pieces });
  assert.deepEqual(said.slice(0, 5), [
    "Step 1: “B” writes nothing, and computes 4 of 4 words.",
    "Step 2: “B” writes “tale”, “s”, and computes 4 of 4 words.",
    "Step 3: “B” writes nothing, and computes 4 of 4 words; 2 are locked.",
    "Step 4: “tale” was written 2 steps ago and has come to rest, so it is locked, the first word that is no longer computed.",
    "Step 5: “s” was written 3 steps ago and has come to rest, so it is locked and no longer computed.",
  ]);
  const comma = tale([{ unmasked: pairs(2, 21, 3, 22) }, { locked: [2] }, { locked: [3] }, {}], { pieces });
  assert.match(comma[1], /writes nothing.*1 is locked\.$/, "a comma is no word");
  assert.match(comma[2], /^Step 3: “s” was written 2 steps ago/);
});

test("of the words that lock in a step the one that stood longest is told, the first position too", () => {
  const words = { pieces: { 20: "one", 21: "two" }, prompt: [], length: 3 };
  const said = tale(
    [{ unmasked: [[1, 21]] }, { unmasked: pairs(0, 20, 2, 20) }, { locked: [0, 1] }, { locked: [2] }, {}],
    words,
  );
  assert.match(said[2], /^Step 3: “two” was written 2 steps ago/);
  const other = [{ unmasked: [[0, 20]] }, { unmasked: [[1, 21]] }, { locked: [0, 1] }, {}];
  assert.match(tale(other, words)[2], /^Step 3: “one” was written 2 steps ago/);
  assert.match(tale([{ unmasked: [[0, 20]] }, { locked: [0] }, {}], words)[1], /^Step 2: “one” was written 1 step ago/);
  const atOnce = tale([{ unmasked: [[0, 20]], locked: [0] }, {}, {}], words);
  assert.match(atOnce[0], /^Step 1: “one” has come to rest, so it is locked/);
  assert.match(
    tale([{ unmasked: [[0, 20]], locked: [0] }, {}, {}], { ...words, compute: { kind: "age", steps: 0 } })[0],
    /“one” was just written and is locked/,
  );
});

test("a step names three of the words that it writes", () => {
  const pieces = { 20: "a", 21: "b", 22: "c", 23: "d" };
  const wrote = (n) =>
    tale([{ unmasked: [20, 21, 22, 23].slice(0, n).map((id, i) => [2 + i, id]) }, {}], { pieces, length: 6 })[0];
  assert.match(wrote(3), /writes “a”, “b”, “c”, and computes/);
  assert.match(wrote(4), /writes “a”, “b”, “c” and more, and computes/);
});

test("after the rule was changed by hand nothing is said to have come to rest", () => {
  const steps = [{ unmasked: [[2, 12]] }, { locked: [2] }, {}];
  const rule = { step: 1, kind: "rule", compute: { kind: "everything" } };
  assert.match(tale(steps)[1], /come to rest/);
  assert.doesNotMatch(tale(steps, { events: [rule] })[1], /come to rest/);
  const lock = { kind: "lock", epsilon: 1 };
  assert.match(tale(steps, { compute: { kind: "both", lock, select: { kind: "select" } } })[1], /come to rest/);
});

test("a chapter is told at its own step alone, where it has a sentence", () => {
  const chapters = [{ step: 1, text: "told." }, { step: 0 }, { step: 2, text: "at the end." }];
  const said = tale([{}, {}, {}], { chapters });
  assert.deepEqual([said[0].slice(0, 12), said[1]], ["Step 1: “B” ", "Step 2: told."]);
  assert.match(said[2], /^“B” did 100 % of the work/);
});

test("by the clock a lane that has not finished its first step is told so", () => {
  const lane = (id, seconds) => [
    decoder(id, id, { kind: "everything" }),
    [0, 1, 2].map((t) => ({ seconds: seconds[t] })),
  ];
  const trace = shown(Trace.parse(raceOf([lane("a", [1, 1, 1]), lane("b", [1.5, 0.1, 0.1])])), {
    byClock: true,
  });
  assert.equal(narrate(trace, 0), "“b” has not finished its first step.");
});

test("a verdict has a sentence for each lane beside the reference", () => {
  const lane = (id) => [
    decoder(id, id, { kind: "everything" }),
    [
      {
        flops: id === "c" ? 50 : 100,
        unmasked: pairs(2, 12, 3, 12),
      },
    ],
  ];
  const said = verdict(Trace.parse(raceOf(["a", "b", "c"].map(lane))));
  assert.match(said, /^“b” did 100 % of the work of “a”.* Both wrote the same text\. “c” did 50 % of the work/);
});

test("a summary tells of each lane beside the reference, of those that have begun", () => {
  const wrote = { unmasked: pairs(2, 12, 3, 12), locked: [2] };
  const lane = (id, seconds, more = {}) => [
    decoder(id, id.toUpperCase(), { kind: "everything" }),
    [{ seconds, ...wrote, ...more }, { seconds }],
  ];
  const trace = Trace.parse(raceOf([lane("a", 1), lane("b", 1, { flops: 50 }), lane("c", 3)]));
  trace.lanes[1].steps[0].damage = { changed: 1, commits: 2, mean: 0.5 };
  const b =
    "B: 1 of 4 positions locked, 50 % of the computation of A so far, the likeliest word changed at 1 of 2 choices, the same text.";
  assert.equal(summary(trace, -1), "");
  assert.equal(
    summary(trace, 0),
    `Step 1 of 2. ${b} C: 1 of 4 positions locked, 100 % of the computation of A so far, the same text.`,
  );
  Object.assign(trace.lanes[2].steps[0], { totalSeconds: 3 });
  const raced = shown(Trace.parse(raceOf([lane("a", 3), lane("b", 1), lane("c", 4)])), { byClock: true });
  assert.match(summary(raced, 0), /^Step 1 of 2\b.* B\b.*text\. C\b.*text\.$/);
  const late = shown(
    Trace.parse(
      raceOf([
        lane("a", 1),
        lane("b", 1),
        [decoder("c", "C", { kind: "everything" }), [{ seconds: 2 }, { seconds: 0.1 }]],
      ]),
    ),
    { byClock: true },
  );
  assert.match(summary(late, 0), /^Step 1 of 2\b.* B\b.*text\. C\b/);
});

test("a grid's name counts the cells of each state", () => {
  const [lane] = Trace.parse(byHand()).lanes;
  const keys = "Arrow keys move over the cells, Enter pins one.";
  assert.equal(gridName(lane, -1), `By hand: 2 masked, 2 active, 0 resting, 0 locked. ${keys}`);
  assert.equal(gridName(lane, 1), `By hand: 1 masked, 1 active, 1 resting, 1 locked. ${keys}`);
});

test("a choice is told with the four positions that it looked at most", () => {
  const trace = raced();
  const list = [0, 1, 0, 1, 0].map((p) => [p, 0.125]);
  assert.equal(lookedAt(trace, trace.lane("b"), 0, list).match(/“/g).length, 4);
  assert.equal(lookedAt(trace, trace.lane("b"), 0, []), "");
});
