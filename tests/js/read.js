// `node tests/js/read.js`: reads [trace, ...] from its input and writes what the page reads of each, for the comparison
// with `surelock.read_trace`.

import { readFileSync } from "node:fs";
import { readTrace } from "../../assets/js/trace/reading.js";
import { clocked, speedOf, timedTogether } from "../../assets/js/trace/timing.js";

const INFINITE = new Map([
  [Infinity, "inf"],
  [NaN, null],
]);
const finite = (values) => Array.from(values, (x) => (INFINITE.has(x) ? INFINITE.get(x) : x));

function laneOf(trace, lane) {
  const last = lane.count - 1;
  const [steps, positions] = [lane.count, lane.n].map((length) => Array.from({ length }, (_, i) => i));
  return {
    id: lane.id,
    states: steps.map((t) => Array.from(lane.row(t))),
    kl: steps.map((t) => finite(lane.kl.subarray(t * lane.n, (t + 1) * lane.n))),
    confidence: steps.map((t) => finite(lane.confidence.subarray(t * lane.n, (t + 1) * lane.n))),
    tokens: Array.from(lane.tokens(last)),
    unmasked: finite(positions.map((p) => lane.unmaskStep(p, last))),
    locked: positions.map((p) => lane.lockStep(p, last)),
    steps: lane.steps.map(({ computed, lockedCount, unmasked, damage }) => [
      computed,
      lockedCount,
      unmasked.length,
      damage?.nats ?? null,
      damage?.regret ?? null,
    ]),
    totals: lane.steps.map(({ totalSeconds, totalFlops, totalBaseline }) => [totalSeconds, totalFlops, totalBaseline]),
    text: trace.pieces.text(Array.from(lane.tokens(last))),
    speeds: trace.lanes.map((other) =>
      timedTogether(lane, other) ? speedOf(lane.secondsOf(last), other.secondsOf(other.count - 1)) : null,
    ),
  };
}

const told = JSON.parse(readFileSync(0, "utf-8")).map((document) => {
  const trace = readTrace(document);
  const lanes = trace.lanes.map((lane) => laneOf(trace, lane));
  return { clocked: clocked(trace.lanes).map(({ id }) => id), reference: trace.reference.id, lanes };
});
process.stdout.write(JSON.stringify(told));
