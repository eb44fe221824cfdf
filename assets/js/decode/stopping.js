// Ends a run early if its text is complete (the setting `stop_at_end`). It mirrors surelock/decoding/stopping.py. A
// text is complete if an end token follows all words of the prompt, and no position before the end token is masked.

import { find } from "./arrays.js";

/**
 * Ends a run whose text is complete, and fills the masked positions after the end.
 * Returns {filled, steps} as `Ended` of surelock/decoding/step.py, null if the text is not complete.
 */
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
