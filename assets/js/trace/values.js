// The values by which cells can be coloured instead of their states: a number from 0 to 1 per position, or NaN.

import { count } from "../dom.js";

const KL_LOW = 1e-8;
const perCell = (lane, f) => Float32Array.from({ length: lane.n }, (_, p) => f(p));

/** The values of positions in the last step that computed them. */
function atLastSeen(lane, step, values, scale) {
  return perCell(lane, (p) => {
    const s = lane.lastComputed(p, step);
    return s < 0 ? NaN : scale(values[s * lane.n + p]);
  });
}

const unit = (x) => Math.min(1, Math.max(0, x));
const depth = (kl) => (Number.isFinite(kl) ? unit(1 - Math.log(Math.max(kl, KL_LOW)) / Math.log(KL_LOW)) : NaN);

/**
 * By name: the label, the function of(trace, lane, step) that returns the values, and the meaning of the scale's
 * ends.
 */
export const VALUES = {
  confidence: {
    label: "Confidence",
    of: (_, lane, step) => atLastSeen(lane, step, lane.confidence, unit),
    ends: () => ["0 %", "100 % sure"],
  },
  kl: {
    label: "KL",
    of: (_, lane, step) => atLastSeen(lane, step, lane.kl, depth),
    ends: () => ["1e-8 nats or less", "1 or more"],
  },
  age: {
    label: "Age",
    of: ({ steps }, lane, step) => {
      const t = lane.clamp(step);
      return perCell(lane, (p) => (t < 0 ? NaN : (t - lane.unmaskStep(p, t)) / Math.max(1, steps)));
    },
    ends: ({ steps }) => ["just written", `${count(steps, "step")} ago`],
  },
};
