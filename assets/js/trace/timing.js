// What is told of times. Those of lanes that took turns in one race can be compared, no others; and a ratio of them is told
// where it is further from 1 than its spread over the steps. surelock/trace/timing.py has the same rule.

const BLOCKS = 16; // that each lane's steps are cut into, in their order; of fewer steps nothing is told
const ERRORS = 3; // the spread, in standard errors
const LEAST = 1.05; // and at least this ratio: a machine is no closer to itself

/** Whether two lanes took turns in the same race. */
export const timedTogether = (a, b) => a === b || (a.timing !== null && a.timing === b.timing);

/** Of these lanes the most that were timed together: those that have a clock. One that is alone has its own; else none may have. */
export function clocked(lanes) {
  const groups = lanes.map((lane) => lanes.filter((other) => timedTogether(lane, other)));
  const most = groups.reduce((a, b) => (b.length > a.length ? b : a), []);
  return most.length > 1 || lanes.length === 1 ? most : [];
}

const sum = (list) => list.reduce((total, x) => total + x, 0);

/** The seconds of all steps but each block's, for each block. */
function withoutEach(seconds) {
  const edge = (block) => Math.floor((seconds.length * block) / BLOCKS);
  const all = sum(seconds);
  return Array.from({ length: BLOCKS }, (_, i) => all - sum(seconds.slice(edge(i), edge(i + 1))));
}

/** How many times as fast `own` is as `other`, both the seconds of a lane's steps; null where that is too close to tell.
 * The standard error of the ratio's logarithm is the jack-knife's: from the ratios with a block of both left out. */
export function speedOf(own, other) {
  if (Math.min(own.length, other.length) < BLOCKS) return null;
  const mine = withoutEach(own);
  const theirs = withoutEach(other);
  const logs = mine.map((x, i) => Math.log(theirs[i] / x)); // of times of zero the error is no number, and nothing is told
  const mean = sum(logs) / BLOCKS;
  const error = Math.sqrt(((BLOCKS - 1) / BLOCKS) * sum(logs.map((x) => (x - mean) ** 2)));
  const speed = sum(other) / sum(own);
  return Math.abs(Math.log(speed)) > Math.max(Math.log(LEAST), ERRORS * error) ? speed : null;
}
