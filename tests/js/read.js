// `node tests/js/read.js`: reads [trace, ...] from its input and writes what the page reads of each, for the comparison
// with `surelock.read_trace`.

import { readFileSync } from "node:fs";
import { lockRule, locksAt } from "../../assets/js/trace/estimate.js";
import { textOf } from "../../assets/js/trace/prose.js";
import { readTrace } from "../../assets/js/trace/reading.js";
import { clocked, speedOf, timedTogether } from "../../assets/js/trace/timing.js";

const INFINITE = new Map([
  [Infinity, "inf"],
  [NaN, null],
]);
const finite = (values) => Array.from(values, (x) => (INFINITE.has(x) ? INFINITE.get(x) : x));

/** What stands after a step, and was known by then. */
function after(lane, t) {
  const of = (f) => Array.from({ length: lane.n }, (_, p) => f(p));
  return {
    tokens: Array.from(lane.tokens(t)),
    unmasked: finite(of((p) => lane.unmaskStep(p, t))),
    locked: of((p) => lane.lockStep(p, t)),
    seen: of((p) => lane.lastComputed(p, t)),
    top: of((p) => lane.top(p, t)),
    ends: lane.endsAt(t),
  };
}

function laneOf(trace, lane) {
  const last = lane.count - 1;
  const steps = Array.from({ length: lane.count }, (_, i) => i);
  const locked = (t) => Array.from({ length: lane.n }, (_, p) => Number(lane.isLocked(p, t))); // also what locks in step t
  const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
  return {
    id: lane.id,
    states: steps.map((t) => Array.from(lane.row(t))),
    locked: steps.flatMap(locked),
    kl: steps.map((t) => finite(lane.kl.subarray(t * lane.n, (t + 1) * lane.n))),
    confidence: steps.map((t) => finite(lane.confidence.subarray(t * lane.n, (t + 1) * lane.n))),
    guesses: steps.map((t) => Array.from(lane.guesses.subarray(t * lane.n, (t + 1) * lane.n))),
    after: [last, 0, last >> 1, last >> 2].map((t) => [t, after(lane, t)]),
    steps: lane.steps.map(({ computed, unmasked }, t) => [computed, sum(locked(t)), unmasked.length]),
    damage: ["nats", "regret", "commits", "changed"].map((name) =>
      lane.steps.map((step) => step.damage?.[name] ?? null),
    ),
    bands: lane.steps.map(({ low, median, high }) => finite([low, median, high])),
    totals: lane.steps.map(({ totalSeconds, totalFlops, totalBaseline }) => [totalSeconds, totalFlops, totalBaseline]),
    text: trace.pieces.text(Array.from(lane.tokens(last))),
    written: textOf(trace, lane, last),
    estimate: lockRule(lane) ? Array.from(locksAt(lane, lockRule(lane).epsilon)) : null,
    speeds: trace.lanes.map((other) =>
      timedTogether(lane, other) ? speedOf(lane.secondsOf(last), other.secondsOf(other.count - 1)) : null,
    ),
  };
}

const told = JSON.parse(readFileSync(0, "utf-8")).map((document) => {
  const trace = readTrace(document);
  const lanes = trace.lanes.map((lane) => laneOf(trace, lane));
  const again = trace.toDocument();
  return { clocked: clocked(trace.lanes).map(({ id }) => id), reference: trace.reference.id, lanes, again };
});
process.stdout.write(JSON.stringify(told));
