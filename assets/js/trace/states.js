// A cell's state after a step depends on three facts: whether the cell is masked, was computed in the step, and is
// locked. A cell that was computed and locked in the same step is active in that step, and locked from the next step
// on.

export const MOST_LANES = 4;

export const MASKED = 0;
export const ACTIVE = 1;
export const LOCKED = 2;
export const RESTING = 3;
export const WAITING = 4;
export const STATES = ["masked", "active", "locked", "resting", "masked, not computed"];
/** Whether a state is that of a masked cell. */
export const isMasked = (state) => state === MASKED || state === WAITING;
