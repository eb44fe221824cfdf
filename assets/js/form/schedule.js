// Length, steps and block length: what was wanted, and what of it fits together. It mirrors surelock/ui/schedule.py.

export const NAMES = ["gen_length", "steps", "block_length"];
const GRAIN = 8; // of the lengths that are offered

/** What settings ask for; null: steps or a block as long as the length follow it. */
export function wantsOf({ gen_length: length, steps, block_length: block }) {
  const unless = (value) => (value === undefined || value === Math.max(1, length) ? null : value);
  return { gen_length: length, steps: unless(steps), block_length: unless(block) };
}

/** Blocks that divide the length and whose number divides the steps. */
export const blockChoices = (length, steps) =>
  Array.from({ length }, (_, i) => i + 1).filter((block) => length % block === 0 && steps % (length / block) === 0);

/** What comes nearest to the wants within so many positions: valid together. Without a block from half of the wanted
 * length on it is one block: shorter ones would decode from left to right. */
export function fit(wants, longest) {
  const length = wants.gen_length <= longest ? wants.gen_length : Math.max(GRAIN, longest - (longest % GRAIN));
  if (!length) return { gen_length: 0, steps: 1, block_length: 1 }; // blanks alone: a step a token
  const steps = Math.min(wants.steps ?? length, length);
  const most = wants.block_length ?? length;
  const small = blockChoices(length, steps).filter((block) => block <= most && 2 * block >= most);
  return { gen_length: length, steps, block_length: small.length ? small.at(-1) : length };
}

/** A sentence about a block length that is not the wanted one; "" for the wanted one. */
export const blockSaid = (wanted, { gen_length: length, steps, block_length: block }) =>
  (wanted ?? block) === block
    ? ""
    : `${block === length ? "One block instead of" : "Changed from"} ${wanted}: blocks must divide ${length} positions, and their number ${steps} steps.`;
