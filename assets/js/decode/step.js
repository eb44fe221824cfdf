// The data that a run and an engine exchange: plans, readings and steps. Their fields are those of
// surelock/decoding/step.py, with flat tables. Slots are positions. R is the number of a step's rows, C the number of
// candidates among them.

import { ranked } from "./arrays.js";

/** The numbers of the best candidates, at most `quota`, in ascending order. score: the candidates' scores. */
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
    listed: null, // the log-probabilities of the plan's `listed` rows, a flat table
    seconds: 0,
    /** The likeliest tokens of the followed rows, [R], -1 for other rows. The engine computes them only when called. */
    likeliest: () => new Int32Array(rows).fill(-1),
  };
}
