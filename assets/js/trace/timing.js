// Which times are compared. Only lanes that took turns in one race have times that can be compared.
// Their ratio is shown where it is further from 1 than its spread over the steps.
// surelock/trace/timing.py has the same rule.

const BLOCKS = 16; // into which a lane's steps are cut, in their order; of fewer steps no ratio is shown
const ERRORS = 3; // the spread, in standard errors
const LEAST = 1.05; // and at least this ratio: a machine is no closer to itself

/** Whether two lanes took turns in the same race. */
export const timedTogether = (a, b) => a === b || (a.timing !== null && a.timing === b.timing);

/** The lanes that have a clock: the largest group that was timed together. A lane that is alone has one. */
export function clocked(lanes) {
  const groups = lanes.map((lane) => lanes.filter((other) => timedTogether(lane, other)));
  const most = groups.reduce((a, b) => (b.length > a.length ? b : a), []);
  return most.length > 1 || lanes.length === 1 ? most : [];
}

const sum = (list) => list.reduce((total, x) => total + x, 0);

/** For every block the seconds of all other blocks' steps. */
function withoutEach(seconds) {
  const edge = (block) => Math.floor((seconds.length * block) / BLOCKS);
  const all = sum(seconds);
  return Array.from({ length: BLOCKS }, (_, i) => all - sum(seconds.slice(edge(i), edge(i + 1))));
}

/**
 * How many times as fast a lane is as another one, from the seconds of their steps; null where that is too close to tell.
 * The standard error of the ratio's logarithm is the jack-knife's: from the ratios with a block of both left out.
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
