// Whole trace documents of four positions, two of them prompt, and three steps.

export const base64 = (...bytes) => btoa(String.fromCharCode(...bytes));

/** A step that computes every position and changes none, but for what `more` says. */
export function record(contestant, step, more = {}) {
  const values = { computed: [0, 4], kl: [0, 1, 2, 3], confidence: [1, 0.5, 0.25, 0] };
  return {
    contestant,
    step,
    unmasked: [],
    locked: [],
    ...values,
    seconds: 1,
    flops: 100,
    baseline_flops: 100,
    ...more,
  };
}

export const contestant = (id, name, compute, more = {}) => ({
  id,
  name,
  compute,
  unmask: { kind: "low_confidence" },
  settings: { gen_length: 2, steps: 3 },
  events: [],
  parent: null,
  ...more,
});

const top = { at: [1, 1], ids: [5, 6, 7, 8, 9], p: base64(255, 51, 0, 0, 0) };
const two = { computed: [0, 1, 3, 1], kl: [0, 0], confidence: [1, 1], seconds: 0.5, flops: 60 };
const three = { computed: [1, 3], kl: [0.5, 0.5, 0.5], confidence: [0.5, 0.5, 0.5], seconds: 0.5, flops: 80 };
const bytes = { kl: base64(0, 1, 254, 255), confidence: base64(0, 51, 102, 255) };

const document = (contestants, records) => ({
  format: "surelock-trace",
  version: 2,
  header: { model: { name: "m" }, length: 4, steps: 3, prompt_tokens: [10, 11], mask_id: 1, eos_id: 0, contestants },
  pieces: { 0: "", 10: "Once", 11: " upon", 12: "=a", 13: [0xc3], 14: [0xa9] },
  records,
});

/** Every position beside locks. */
export const small = () =>
  document(
    [
      contestant("a", "All", { kind: "everything" }),
      contestant("b", "=Locks", { kind: "lock", epsilon: 0.01, percentile: 20 }),
    ],
    [
      record("a", 0, { unmasked: [[2, 12]], kl: [null, null, null, null] }),
      record("b", 0, { unmasked: [[2, 12]], locked: [0], ...bytes }),
      record("a", 1, { unmasked: [[3, 13]] }),
      record("b", 1, { unmasked: [[3, 14]], locked: [1], unlocked: [0], ...three, top }),
      record("a", 2),
      record("b", 2, { locked: [0, 2], ...two }),
    ],
  );

const rows = (computed) => ({ ...two, computed, kl: [1, 1], confidence: [1, 1] });

/** One lane that rests, and that a person wrote into, masked and unlocked. */
export const byHand = () =>
  document(
    [contestant("c", "By hand", { kind: "block_cache", dual: true })],
    [
      record("c", 0, { ...rows([2, 2]), unmasked: [[2, 12]], locked: [0] }),
      record("c", 1, { ...rows([0, 1, 3, 1]), masked: [2], unlocked: [0], locked: [0], written: [[3, 13]] }),
      record("c", 2, { ...rows([1, 2]), written: [[3, 14]], unmasked: [[2, 15]] }),
    ],
  );
