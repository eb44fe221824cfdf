// Texts that are over (`stop_at_end`), as surelock/decoding/stopping.py ends them: an end stands behind all that is
// given, and nothing before it is masked.

import { find } from "./arrays.js";

/** Ends a run whose text is over, and fills what is masked behind the end: {filled, steps}, as `Ended` of
 * surelock/decoding/step.py says; null where nothing is over. */
export function stop({ canvas, schedule, state, shape, policy }) {
  if (!schedule.running) return null;
  const settled = policy.revises ? schedule.block[0] : canvas.total;
  const end = canvas.tokens.findIndex(
    (token, slot) => slot >= canvas.given_until && slot < settled && shape.ends.includes(token),
  );
  if (end < 0 || canvas.masked.subarray(0, end).includes(1)) return null;
  const steps = schedule.left;
  const masked = find(canvas.masked);
  state.commit(
    masked,
    masked.map(() => canvas.tokens[end]),
  );
  schedule.stop();
  return { filled: canvas.flags(masked), steps };
}
