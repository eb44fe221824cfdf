// A whole trace document of four positions, two of them prompt, and three steps.

export const base64 = (...bytes) => btoa(String.fromCharCode(...bytes));

/** A step that computes every position and changes none, but for what `more` says. */
export function record(decoder, step, more = {}) {
  const values = { computed: [0, 4], kl: [0, 1, 2, 3], confidence: [1, 0.5, 0.25, 0] };
  return { decoder, step, unmasked: [], locked: [], ...values, seconds: 1, flops: 100, baseline_flops: 100, ...more };
}

const top = { at: [1, 1], ids: [5, 6, 7, 8, 9], p: base64(255, 51, 0, 0, 0) };
const two = { computed: [0, 1, 3, 1], kl: [0, 0], confidence: [1, 1], seconds: 0.5, flops: 60 };
const three = { computed: [1, 3], kl: [0.5, 0.5, 0.5], confidence: [0.5, 0.5, 0.5], seconds: 0.5, flops: 80 };
const bytes = { kl: base64(0, 1, 254, 255), confidence: base64(0, 51, 102, 255) };

export const small = () => ({
  format: "surelock-trace",
  version: 1,
  header: { length: 4, steps: 3, prompt_tokens: [10, 11], eos_id: 0, settings: {}, lock: { epsilon: 0.01 } },
  pieces: { 0: "", 10: "Once", 11: " upon", 12: "=a", 13: [0xc3], 14: [0xa9] },
  records: [
    record("baseline", 0, { unmasked: [[2, 12]], kl: [null, null, null, null] }),
    record("surelock", 0, { unmasked: [[2, 12]], locked: [0], ...bytes }),
    record("baseline", 1, { unmasked: [[3, 13]] }),
    record("surelock", 1, { unmasked: [[3, 14]], locked: [1], unlocked: [0], ...three, top }),
    record("baseline", 2),
    record("surelock", 2, { locked: [0, 2], ...two }),
  ],
});
