// Length, steps and block length: the wanted values, and values near them that fit together. It mirrors
// surelock/ui/schedule.py.

export const NAMES = ["gen_length", "steps", "block_length"];
const GRAIN = 8; // the step between the offered lengths

/**
 * The wanted values of settings. Steps or a block length that equal the length become null, which `fit` turns into the
 * length that it chooses.
 */
export function wantsOf({ gen_length: length, steps, block_length: block }) {
  const unless = (value) => (value === undefined || value === Math.max(1, length) ? null : value);
  return { gen_length: length, steps: unless(steps), block_length: unless(block) };
}

/** The block lengths that cut the length into equal blocks, and the steps into as many equal shares. */
export const blockChoices = (length, steps) =>
  Array.from({ length }, (_, i) => i + 1).filter((block) => length % block === 0 && steps % (length / block) === 0);

/**
 * Values that fit together. The length is the wanted one, or the largest multiple of GRAIN up to `longest`, at least
 * GRAIN. The block length is the largest that fits and is not longer than the wanted one, but at least half as long:
 * much shorter blocks would decode from left to right. If none fits, the whole length is one block.
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
    : `${block === length ? "One block instead of" : "Changed from"} ${wanted}: blocks must divide ${length} positions, and the number of blocks must divide ${steps} steps.`;
