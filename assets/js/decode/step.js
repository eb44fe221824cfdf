// What passes between a run and an engine. Slots are positions. R counts a step's rows, C those of them that may be
// committed. The fields of a plan, a reading and a step are those of surelock/decoding/step.py; tables are flat.

import { ranked } from "./arrays.js";

/** Numbers of the candidates that a plan's quota lets be committed, ascending. score: the candidates' scores. */
export const bestOf = (score, quota) =>
  ranked(score.length, (i) => -score[i])
    .subarray(0, quota ?? score.length)
    .sort();

/** A reading of a plan before the engine has computed anything. */
export function emptyReading(plan) {
  const rows = plan.slots.length;
  const candidates = plan.chooses.filter(Boolean).length;
  return {
    slots: plan.slots,
    probed: plan.probed,
    confidence: new Float64Array(rows).fill(Number.NaN),
    kl: new Float64Array(rows).fill(Number.NaN),
    tokens: new Int32Array(candidates),
    score: new Float64Array(candidates),
    measures: Object.fromEntries(plan.measures.map((name) => [name, new Float64Array(candidates).fill(Number.NaN)])),
    top_ids: new Int32Array(rows * plan.top_k).fill(-1),
    top_probs: new Float64Array(rows * plan.top_k).fill(Number.NaN),
    finite: true,
    listed: null, // log-probabilities of the plan's `listed` rows, a flat table
    seconds: 0,
    /** The likeliest tokens of the watched rows, [R], -1 of others: the engine looks for them once a rule asks. */
    likeliest: () => new Int32Array(rows).fill(-1),
  };
}
