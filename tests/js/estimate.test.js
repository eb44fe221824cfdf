import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { lockRule, locksAt } from "../../assets/js/estimate.js";
import { Trace } from "../../assets/js/trace.js";
import { restingMedians, VALUES } from "../../assets/js/values.js";
import { small } from "./small.js";

const recorded = () =>
  Trace.parse(JSON.parse(readFileSync(new URL("../../assets/runs/stories.json", import.meta.url), "utf8")));

const by = (when, t) => when.filter((step) => step <= t).length;

// KL is kept to 13 %, confidence to 1/255: a few positions lie at the edge of the rule.
test("at the run's own epsilon the estimate is the record, but for values at the edge of a byte", () => {
  const { lanes } = recorded();
  const lane = lanes.find(lockRule);
  const when = locksAt(lane, lockRule(lane).epsilon, lanes[0]);
  const unlike = when.filter((step, p) => lane.lockStep(p, lane.count - 1) !== (step < Infinity ? step : -1));
  assert.ok(by(when, 127) > 100 && unlike.length <= 6, `${unlike.length} positions lock in another step`);
});

test("a looser epsilon locks more by now, a stricter one less, and one below all KL nothing", () => {
  const { lanes } = recorded();
  const lane = lanes.find(lockRule);
  const counts = [1e-13, 5e-6, 5e-4, 5e-2, 1].map((epsilon) => by(locksAt(lane, epsilon, lanes[0]), 60));
  assert.deepEqual(
    counts,
    [...counts].sort((a, b) => a - b),
  );
  assert.ok(counts[0] < 5 && counts[1] < counts[2] && counts[2] < counts[4], String(counts));
});

test("what the record cannot tell is not estimated", () => {
  const lane = (compute) => ({ contestant: { compute } });
  const lock = { kind: "lock", epsilon: 1e-3, percentile: 20 };
  assert.equal(lockRule(lane({ kind: "everything" })), null);
  assert.equal(lockRule(lane({ ...lock, smoothing: 0.5 })), null);
  assert.equal(lockRule(lane({ ...lock, unlock: { period: 8 } })), null);
  assert.equal(lockRule(lane({ ...lock, epsilon: "inf" })), null);
  assert.equal(lockRule(lane({ kind: "both", lock, select: { kind: "select" } })), lock);
});

test("the median of all that is written keeps what is locked at its last value", () => {
  const lane = Trace.parse(small()).lanes[1];
  assert.deepEqual([...lane.seen], [0, 0, 0, 0, 0, 1, 1, 1, 2, 1, 1, 2]);
  const [first, second, third] = restingMedians(lane);
  assert.ok(Math.abs(first - 1e-12) < 1e-13, "positions 0 to 2 are written, with KL 0, 1e-12 and about 80");
  assert.deepEqual([second, third], [0.5, 0.25]);
});

test("values are 0 to 1, and nothing where there is none", () => {
  const trace = Trace.parse(small());
  const [all, locks] = trace.lanes;
  assert.deepEqual([...VALUES.confidence.of(trace, all, 0)], [1, 0.5, 0.25, 0]);
  assert.deepEqual(
    [...VALUES.kl.of(trace, all, 0)],
    [NaN, NaN, NaN, NaN],
    "the first step has nothing to compare with",
  );
  assert.deepEqual([...VALUES.kl.of(trace, all, 1)], [0, 1, 1, 1]);
  const ages = VALUES.age.of(trace, locks, 1);
  assert.deepEqual(
    [...ages].map((age) => Math.round(3 * age)),
    [2, 2, 1, 0],
  );
  assert.ok([...VALUES.age.of(trace, locks, -1)].every(Number.isNaN));
});

test("a judge's surprise lies on the positions whose text it read", () => {
  const trace = Trace.parse({
    ...small(),
    scores: { judge: { a: { bits_per_character: 1, nats: [2, 4], tokens: ["=", "a"] } } },
  });
  const [all, locks] = trace.lanes;
  assert.ok(VALUES.surprise.offered(trace));
  const values = [...VALUES.surprise.of(trace, all, 0)];
  assert.deepEqual(values.slice(0, 2), [NaN, NaN]);
  assert.ok([...VALUES.surprise.of(trace, locks, 0)].every(Number.isNaN), "no judge read this lane");
  assert.ok(!VALUES.surprise.offered(Trace.parse(small())));
});
