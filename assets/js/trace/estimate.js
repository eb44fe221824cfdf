// What would have locked by now at another epsilon, told from the KL and the confidence that a run recorded.
// It is the lock rule run over the record: the run itself at the run's own epsilon (but for the bytes that the record
// rounds to), an estimate elsewhere, because what locks earlier or later changes what the steps after it compute.

import { isMasked, LOCKED } from "./states.js";

/** The lock rule of a lane, if the record suffices to run it anew; else null. */
export function lockRule({ decoder: { compute } }) {
  const rule = compute.lock ?? compute;
  const known = rule.kind === "lock" && Number.isFinite(rule.epsilon) && rule.epsilon > 0;
  return known && !rule.unlock ? rule : null;
}

/** The step in which each position would have locked at `epsilon`, Infinity where it would not have: [n]. full: a lane
 * that computed every position, which lends the KL of what this lane had locked already; or null. */
export function locksAt(lane, epsilon, full = null) {
  const { epsilon: recorded, percentile = null, visible_steps: wait = 1 } = lockRule(lane);
  const { n } = lane;
  const when = new Array(n).fill(Infinity);
  const seen = new Int32Array(n); // passes that had the position's token as input
  for (let t = 0; t < lane.count; t++) {
    const step = lane.steps[t];
    const [locked, written, masked] = [step.locked, step.written, step.masked].map((list) => new Set(list));
    const [before, states] = [lane.row(t - 1), lane.row(t)];
    const candidates = [];
    for (let p = 0; p < n; p++) {
      const at = t * n + p;
      const source = Number.isNaN(lane.confidence[at]) && states[p] === LOCKED ? full : lane;
      if (!source || !(at < source.kl.length) || Number.isNaN(source.confidence[at])) continue;
      if (written.has(p)) seen[p] = 1;
      else seen[p] = masked.has(p) || isMasked(before[p]) ? 0 : seen[p] + 1;
      if (isMasked(states[p]) || seen[p] < wait || when[p] < t) continue;
      const kl = source.kl[at];
      const did = locked.has(p);
      candidates.push({ p, kl, did, sure: source.confidence[at], refused: source === lane && !did && kl <= recorded });
    }
    for (const { p, kl, did } of gate(candidates, percentile))
      if (kl <= epsilon || (did && epsilon >= recorded)) when[p] = t;
  }
  return when;
}

/** The most certain of the candidates. The record's confidence is coarse: among equals those first that did lock in this
 * step, and those last that the rule refused though their KL was small enough. */
function gate(candidates, percentile) {
  if (percentile === null || !candidates.length) return candidates;
  const most = Math.floor((percentile * (candidates.length - 1)) / 100) + 1;
  const order = ({ did, refused }) => (did ? 0 : 1 + refused);
  const sorted = candidates.sort((a, b) => b.sure - a.sure || order(a) - order(b) || a.kl - b.kl);
  return sorted.filter(({ did }, i) => i < most || did);
}
