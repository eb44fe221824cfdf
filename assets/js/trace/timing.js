// Decides which times are compared. Only lanes that took turns in one race have times that can be compared.
// The ratio of two times is shown if it is further from 1 than its spread over the steps.
// surelock/trace/timing.py has the same rule.

const BLOCKS = 16; // the number of blocks of consecutive steps; lanes with fewer steps have no ratio
const ERRORS = 3; // the spread, in standard errors
const LEAST = 1.05; // the least ratio that is shown: two runs of the same work differ as much

/** Whether two lanes took turns in the same race. */
export const timedTogether = (a, b) => a === b || (a.timing !== null && a.timing === b.timing);

/** The lanes with a clock: the largest group of lanes that were timed together. A single lane has a clock, too. */
export function clocked(lanes) {
  const groups = lanes.map((lane) => lanes.filter((other) => timedTogether(lane, other)));
  const most = groups.reduce((a, b) => (b.length > a.length ? b : a), []);
  return most.length > 1 || lanes.length === 1 ? most : [];
}

const sum = (list) => list.reduce((total, x) => total + x, 0);

/** For every block, the sum of the seconds of all steps outside the block. */
function withoutEach(seconds) {
  const edge = (block) => Math.floor((seconds.length * block) / BLOCKS);
  const all = sum(seconds);
  return Array.from({ length: BLOCKS }, (_, i) => all - sum(seconds.slice(edge(i), edge(i + 1))));
}

/**
 * How many times as fast a lane is as another lane, from the seconds of their steps; null if it is too close to tell.
 * The standard error of the ratio's logarithm is the jack-knife's: it comes from the ratios without one block.
 */
export function speedOf(laneSeconds, otherSeconds) {
  if (Math.min(laneSeconds.length, otherSeconds.length) < BLOCKS) return null;
  const mine = withoutEach(laneSeconds);
  const theirs = withoutEach(otherSeconds);
  const logs = mine.map((x, i) => Math.log(theirs[i] / x)); // times of zero make the error NaN, and the result null
  const mean = sum(logs) / BLOCKS;
  const error = Math.sqrt(((BLOCKS - 1) / BLOCKS) * sum(logs.map((x) => (x - mean) ** 2)));
  const speed = sum(otherSeconds) / sum(laneSeconds);
  return Math.abs(Math.log(speed)) > Math.max(Math.log(LEAST), ERRORS * error) ? speed : null;
}
