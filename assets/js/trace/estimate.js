// Estimates which positions would be locked at another epsilon, from the KL and the confidence that a run recorded.
// The lock rule is applied to the record. At the run's epsilon the result is the run itself, apart from the rounding of
// the record. At another epsilon it is only an estimate: positions that lock earlier or later change later steps.

import { isMasked, LOCKED } from "./states.js";

/** The lock rule of a lane if the record suffices to apply it again, else null. */
export function lockRule({ decoder: { compute } }) {
  const rule = compute.lock ?? compute;
  const known = rule.kind === "lock" && Number.isFinite(rule.epsilon) && rule.epsilon > 0;
  return known && !rule.unlock ? rule : null;
}

/**
 * The positions that would be locked at `epsilon`: 1 or 0 at the index step * n + position.
 * full: a lane that computed every position, or null. Its KL is used for positions that this lane had locked already.
 */
export function locksAt(lane, epsilon, full = null) {
  const { epsilon: recorded, percentile = null, visible_steps: wait = 1 } = lockRule(lane);
  const { n } = lane;
  const table = new Uint8Array(lane.count * n);
  const locked = new Uint8Array(n);
  const seen = new Int32Array(n); // the number of passes that had the position's token as input
  for (let t = 0; t < lane.count; t++) {
    const step = lane.steps[t];
    const [locks, written, masked] = [step.locked, step.written, step.masked].map((list) => new Set(list));
    for (const p of [...masked, ...written]) seen[p] = 0;
    const stays = (p) => step.back.includes(p) && locked[p]; // a locked position is never taken back
    for (const p of [...masked, ...written, ...step.unlocked]) if (!stays(p)) locked[p] = 0;
    const before = lane.row(t - 1);
    const states = lane.row(t);
    const candidates = [];
    for (let p = 0; p < n; p++) {
      const at = t * n + p;
      const computed = !Number.isNaN(lane.confidence[at]);
      const did = locks.has(p);
      if (did && !computed) locked[p] = 1; // a person locked it
      const source = !computed && states[p] === LOCKED ? full : lane;
      if (!source || !(at < source.kl.length) || Number.isNaN(source.confidence[at])) continue;
      if (written.has(p) || !(masked.has(p) || isMasked(before[p]))) seen[p] += 1;
      if (isMasked(states[p]) || seen[p] < wait || locked[p]) continue;
      const kl = source.kl[at];
      candidates.push({ p, kl, did, sure: source.confidence[at], refused: source === lane && !did && kl <= recorded });
    }
    for (const { p, kl, did } of gate(candidates, percentile))
      if (kl <= epsilon || (did && epsilon >= recorded)) locked[p] = 1;
    table.set(locked, t * n);
  }
  return table;
}

/**
 * The most certain candidates, as the rule's percentile asks.
 * The recorded confidence is coarse. Among equals, candidates that locked in this step come first, and candidates
 * that the rule refused although their KL was small enough come last.
 */
function gate(candidates, percentile) {
  if (percentile === null || !candidates.length) return candidates;
  const most = Math.floor((percentile * (candidates.length - 1)) / 100) + 1;
  const order = ({ did, refused }) => (did ? 0 : 1 + refused);
  const sorted = candidates.sort((a, b) => b.sure - a.sure || order(a) - order(b) || a.kl - b.kl);
  return sorted.filter(({ did }, i) => i < most || did);
}
