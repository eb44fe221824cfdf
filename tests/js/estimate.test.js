import assert from "node:assert/strict";
import test from "node:test";
import { lockRule, locksAt } from "../../assets/js/trace/estimate.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { VALUES } from "../../assets/js/trace/values.js";
import { decoder, every, pairs, raceOf } from "./small.js";

/** The step in which each position would lock first, Infinity where none. */
function first(lane, epsilon, full) {
  const locked = locksAt(lane, epsilon, full);
  const steps = Array.from({ length: lane.count }, (_, t) => t);
  return Array.from({ length: lane.n }, (_, p) => steps.find((t) => locked[t * lane.n + p]) ?? Infinity);
}

/** The step in which each of four positions would lock; 0 and 1 are prompt, 2 and 3 are written in the first step. */
function locks(rule, epsilon = 0.01, kl = [0, 0, 0, 0], sure = [1, 0.75, 0.5, 0.25]) {
  const first = {
    kl: [9, 9, 9, 9],
    unmasked: pairs(2, 12, 3, 13),
  };
  const steps = [first, {}, {}].map((more) => ({ kl, confidence: sure, ...more }));
  return estimated([decoder("b", "B", { kind: "lock", epsilon: 0.005, ...rule }), steps], epsilon);
}

/** The same of the last of some lanes; the first lends its KL where there are two. */
function estimated(...sides) {
  const epsilon = sides.pop();
  const { lanes } = Trace.parse(raceOf(sides));
  return first(lanes.at(-1), epsilon, lanes.length > 1 ? lanes[0] : null);
}

test("the gate lets the most certain of the candidates pass, as many as its percentile says", () => {
  const at = (percentile) => locks({ percentile }).filter((step) => step === 1).length;
  assert.deepEqual([null, 100, 99, 67, 66, 50, 34, 33, 20, 0].map(at), [4, 4, 3, 3, 2, 2, 2, 1, 1, 1]);
  assert.deepEqual(
    locks({ percentile: 50 }),
    [1, 1, 2, Infinity],
    "those that are left are the next step's candidates",
  );
  assert.deepEqual(locks({ percentile: 0 }, 0.01, [0, 0, 0, 0], [0, 0.25, 1, 0.5]), [Infinity, Infinity, 1, 2]);
});

test("a position locks at most at epsilon, once its token has been seen for as many steps as the rule asks", () => {
  assert.deepEqual(locks({ percentile: null }, 0.25, [0.25, 0.5, 0, 0.125]), [1, Infinity, 1, 1]);
  assert.deepEqual(locks({ percentile: null }, 99), [0, 0, 1, 1]);
  assert.deepEqual(locks({ visible_steps: 2 }), [1, 1, 2, 2]);
  assert.deepEqual(locks({ visible_steps: 3 }), [2, 2, Infinity, Infinity]);
});

test("where the run had locked already, the lane that computed everything lends its KL", () => {
  const written = { unmasked: pairs(2, 12, 3, 13), kl: [9, 9, 9, 9] };
  const all = (...own) => [
    decoder("a", "A", { kind: "everything" }),
    own.map((kl) => ({ ...written, unmasked: [], kl: [9, 9, kl, 9] })),
  ];
  const rule = { kind: "lock", epsilon: 0.005 };
  const rests = { computed: [0, 2, 3, 1], kl: [9, 9, 9], confidence: [1, 1, 1] };
  const run = [written, { kl: [9, 9, 0.004, 9], locked: [2] }, rests, rests];
  const lane = [decoder("b", "B", rule), run];
  assert.equal(estimated(all(9, 9, 0.0005, 0), lane, 0.001)[2], 2);
  assert.equal(estimated(all(9, 0, 0.0005, 0), lane, 0.001)[2], 2, "its own KL holds in the step in which it locked");
  assert.equal(estimated(all(9, 9, 9, 9), lane, 0.001)[2], Infinity);
  assert.equal(estimated(lane, 0.001)[2], Infinity, "nobody lends any");
  assert.equal(estimated(all(9, 9, 9, 9), lane, 0.004)[2], Infinity);
  assert.equal(estimated(all(9, 9, 9, 9), lane, 0.005)[2], 1);
  const resting = [decoder("b", "B", rule), [written, rests, rests, rests]];
  assert.equal(estimated(all(0, 0, 0, 0), resting, 0.001)[2], Infinity, "what only rests is not estimated");
  const own = Trace.parse(raceOf([lane])).lanes[0];
  const short = Trace.parse(raceOf([all(9, 9)])).lanes[0];
  assert.equal(first(own, 0.001, short)[2], Infinity, "it may have fewer steps");
});

test("among equally certain ones those that did lock come first, those that the rule refused last", () => {
  const step = (kl, more = {}) => ({ kl, confidence: [0.5, 0.5, 0.5, 0.5], ...more });
  const first = step([9, 9, 9, 9], { unmasked: pairs(2, 12, 3, 13) });
  const at = (list, epsilon = 0.01) =>
    estimated([decoder("b", "B", { kind: "lock", epsilon: 0.005, percentile: 0 }), [first, ...list]], epsilon);
  const none = Infinity;
  assert.deepEqual(at([step([0, 0, 0, 0.004], { locked: [3] })]), [none, none, none, 1]);
  assert.deepEqual(at([step([0.004, 0.008, 0.009, 9])]), [none, 1, none, none], "0 was small enough, and refused");
  assert.deepEqual(at([step([0.005, 0.008, 9, 9])]), [none, 1, none, none]);
  assert.deepEqual(at([step([0.004, 0.003, 0.001, 0.002])]), [none, none, 1, none], "then the smaller KL");
  assert.deepEqual(at([step([0.008, 0.007, 9, 9])]), [none, 1, none, none]);
  const rounded = [step([9, 9, 9, 0.0051], { locked: [3] })];
  assert.equal(at(rounded, 0.005)[3], 1, "what did lock, locks, though its KL was rounded up");
  assert.equal(at(rounded, 0.004)[3], none);
});

test("what would be locked is never taken back, what is taken back begins anew", () => {
  const rule = { kind: "lock", epsilon: 0.005 };
  const step = (kl, more = {}) => ({ kl: [9, 9, kl, kl], ...more });
  const list = [
    step(9, { unmasked: pairs(2, 12, 3, 13) }),
    step(0.008),
    step(9, { taken_back: [2, 3], unmasked: pairs(2, 12) }),
  ];
  list.push(step(0.004, { unmasked: pairs(3, 13), locked: [2] }), step(0.004, { locked: [3] }));
  const lane = [decoder("b", "B", rule, { unmask: { kind: "remask" } }), list];
  assert.deepEqual(estimated(lane, 0.005).slice(2), [3, 4]);
  const { lanes } = Trace.parse(raceOf([lane]));
  const looser = locksAt(lanes[0], 0.01);
  assert.deepEqual(
    [1, 2, 3, 4].map((t) => [...looser.subarray(4 * t + 2, 4 * t + 4)].join("")),
    ["11", "11", "11", "11"],
  );
  assert.deepEqual(lanes[0].takenBack(3, 4), [[2, 13]]);
});

test("what the record cannot tell is not estimated", () => {
  const lane = (compute) => ({ decoder: { compute } });
  const lock = { kind: "lock", epsilon: 1e-3, percentile: 20 };
  assert.equal(lockRule(lane({ kind: "everything" })), null);
  for (const other of [{ kind: "age" }, { epsilon: 0 }, { epsilon: -1 }, { epsilon: undefined }])
    assert.equal(lockRule(lane({ ...lock, ...other })), null);
  assert.equal(lockRule(lane(lock)), lock);
  assert.equal(lockRule(lane({ ...lock, unlock: { period: 8 } })), null);
  assert.equal(lockRule(lane({ ...lock, epsilon: "inf" })), null);
  assert.equal(lockRule(lane({ kind: "both", lock, select: { kind: "select" } })), lock);
});

test("a KL is shown on a log scale, and each scale says what its ends mean", () => {
  const trace = Trace.parse(
    raceOf([every("b", [{ kl: [1e-4, 1e-9, 1e-8, 9] }, { computed: [0, 1], kl: [0.01], confidence: [0.5] }])]),
  );
  const round = (values) => [...values].map((x) => Number(x.toFixed(4)));
  assert.deepEqual(round(VALUES.kl.of(trace, trace.lanes[0], 0)), [0.5, 0, 0, 1]);
  assert.deepEqual(round(VALUES.kl.of(trace, trace.lanes[0], 1)), [0.75, 0, 0, 1], "each at its last computed value");
  assert.deepEqual(round(VALUES.kl.of(trace, trace.lanes[0], -1)), [NaN, NaN, NaN, NaN]);
  const ages = VALUES.age.of(trace, trace.lanes[0], 0);
  assert.deepEqual([...ages], [0.5, 0.5, NaN, NaN]);
  assert.deepEqual(
    Object.values(VALUES).map(({ label, ends }) => [label, ...ends({ steps: 5 })]),
    [
      ["Confidence", "0 %", "100 % sure"],
      ["KL", "1e-8 nats or less", "1 or more"],
      ["Age", "just written", "5 steps ago"],
    ],
  );
});
