// What a cell is after a step follows from three facts: masked or not, computed in the step or not, locked or not. One that is
// computed and locks in the same step was computed: it is active there, and locked from the next step on.

export const MOST_LANES = 4;

export const MASKED = 0;
export const ACTIVE = 1;
export const LOCKED = 2;
export const RESTING = 3;
export const WAITING = 4;
export const STATES = ["masked", "active", "locked", "resting", "masked, not computed"];
export const isMasked = (state) => state === MASKED || state === WAITING;
