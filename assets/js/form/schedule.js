// Length, steps and block length: the wanted values, and the nearest values that fit together. It mirrors
// surelock/ui/schedule.py.

export const NAMES = ["gen_length", "steps", "block_length"];
const GRAIN = 8; // the step between the offered lengths

/** The wanted values of settings. Steps or a block length equal to the length become null, and follow the length. */
export function wantsOf({ gen_length: length, steps, block_length: block }) {
  const unless = (value) => (value === undefined || value === Math.max(1, length) ? null : value);
  return { gen_length: length, steps: unless(steps), block_length: unless(block) };
}

/** The block lengths that divide the length, and whose number of blocks divides the steps. */
export const blockChoices = (length, steps) =>
  Array.from({ length }, (_, i) => i + 1).filter((block) => length % block === 0 && steps % (length / block) === 0);

/**
 * The values nearest to the wanted values that fit together, with a length of at most `longest`.
 * If no block of at least half of the wanted block length fits, there is one block: much shorter blocks would decode
 * from left to right.
 */
export function fit(wants, longest) {
  const length = wants.gen_length <= longest ? wants.gen_length : Math.max(GRAIN, longest - (longest % GRAIN));
  if (!length) return { gen_length: 0, steps: 1, block_length: 1 }; // the run only fills in blanks
  const steps = Math.min(wants.steps ?? length, length);
  const most = wants.block_length ?? length;
  const small = blockChoices(length, steps).filter((block) => block <= most && 2 * block >= most);
  return { gen_length: length, steps, block_length: small.length ? small.at(-1) : length };
}

/** A sentence about a block length that differs from the wanted one, else "". */
export const blockSaid = (wanted, { gen_length: length, steps, block_length: block }) =>
  (wanted ?? block) === block
    ? ""
    : `${block === length ? "One block instead of" : "Changed from"} ${wanted}: blocks must divide ${length} positions, and their number ${steps} steps.`;
