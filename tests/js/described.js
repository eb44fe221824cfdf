// A few of the library's settings, rules and policies, as surelock/decoding/described.py describes them, and the form of a
// page that offers these.

const number = (label, more) => ({ kind: "number", label, help: "", range: "a number", low: 0, high: 1, ...more });
const WHOLE = { kind: "whole", help: "", range: "a whole number", low: 1, high: 8192 };
const whole = (label, more) => ({ ...WHOLE, label, ...more });

export const DESCRIBED = {
  settings: {
    gen_length: whole("Generated length", { default: 128, offered: [8, 256, 8] }),
    steps: whole("Steps", { default: 128, offered: [8, 256, 8] }),
    block_length: whole("Block length", { default: null, none: "one block", offered: [8, 256, 8] }),
    seed: whole("Seed", { default: 0, low: 0, offered: [0, 99, 1] }),
  },
  compute: {
    everything: { label: "Every token", sentence: "Computes every position.", settings: {} },
    lock: {
      label: "Lock",
      sentence: "Locks what has settled.",
      locks: true,
      settings: {
        epsilon: number("ε", { default: 5e-4, log: true, offered: [1e-8, 1, 0] }),
        percentile: number("Percentile m", { default: 20, high: 100, none: "all", offered: [0, 100, 5] }),
      },
    },
    age: {
      label: "Lock by age",
      sentence: "Locks by age.",
      locks: true,
      settings: { steps: whole("Age", { default: 12, offered: [1, 64, 1] }) },
    },
    select: {
      label: "Budget",
      sentence: "Computes a share.",
      settings: { fraction: number("Share", { default: 0.3, offered: [0.05, 1, 0.05] }) },
    },
  },
  unmask: {
    low_confidence: { label: "the surest", sentence: "Writes the surest.", settings: {} },
    random: { label: "anything", sentence: "Writes anything.", settings: {} },
    near: { label: "near ones", sentence: "Writes near ones.", settings: {}, server: true },
  },
};

const unmask = { kind: "low_confidence" };
export const PRESETS = [
  { id: "everything", name: "Every token", sentence: "All.", compute: { kind: "everything" }, unmask },
  {
    id: "surelock",
    name: "SureLock",
    sentence: "Locks.",
    compute: { kind: "lock", epsilon: 5e-4, percentile: 20 },
    unmask,
  },
  { id: "age", name: "Lock by age", sentence: "By age.", compute: { kind: "age", steps: 12 }, unmask },
];
const lanes = PRESETS.slice(0, 2).map(({ id, name, compute }, i) => ({
  id: `lane-${i + 1}`,
  name,
  preset: id,
  compute,
  unmask,
}));

export const FORM = {
  model: "stories",
  about: "stories",
  prompt: "Once upon a time",
  values: { gen_length: 128, steps: 128, block_length: null, seed: 0 },
  lanes: JSON.stringify({ lanes, presets: PRESETS, arrived: { said: "" } }),
  most: 256,
};
