// Whole trace documents of four positions, two of them prompt, and three steps; and random sequences.

import { readFileSync } from "node:fs";
import fc from "fast-check";

/** How random sequences are drawn: SEED=2 npm test draws others, SHRINK=1 makes one that fails as short as can be. */
export const RANDOM = { seed: Number(process.env.SEED ?? 48), endOnFailure: !process.env.SHRINK };

/** A list of numbers that a test makes its moves of. */
export const numbers = (maxLength) =>
  fc.array(fc.nat(9999), { minLength: process.env.SHRINK ? 1 : maxLength >> 1, maxLength, size: "max" });

/**
 * The move that a number means, among those that can be made now: {name, move, n}, where n is the number that is left
 * for the move. moves: [can, move] by name. able(can): whether the move can be made.
 */
export function chosenMove(moves, number, able) {
  const names = Object.keys(moves).filter((name) => able(moves[name][0]));
  const name = names[number % names.length];
  return { name, move: moves[name][1], n: Math.floor(number / names.length) };
}

/** A JSON file, by its path in the repository. */
export const read = (path) => JSON.parse(readFileSync(new URL(`../../${path}`, import.meta.url), "utf-8"));

export const base64 = (...bytes) => btoa(String.fromCharCode(...bytes));

/** A step's [[position, token], ...], from position, token, position, token ... */
export const pairs = (...flat) => Array.from({ length: flat.length / 2 }, (_, i) => flat.slice(2 * i, 2 * i + 2));

/** A step that computes every position and changes none, but for what `more` says. */
export function record(lane, step, more = {}) {
  const values = { computed: [0, 4], kl: [0, 1, 2, 3], confidence: [1, 0.5, 0.25, 0] };
  return { lane, step, unmasked: [], locked: [], ...values, seconds: 1, flops: 100, baseline_flops: 100, ...more };
}

export const decoder = (id, name, compute, more = {}) => ({
  id,
  name,
  compute,
  unmask: { kind: "low_confidence" },
  settings: { gen_length: 2, steps: 3 },
  events: [],
  parent: null,
  ...more,
});

/** A lane that computes everything, and its steps, as `raceOf` takes them. */
export const every = (id, steps, more) => [decoder(id, id, { kind: "everything" }, more), steps];

/** Steps that take so many seconds each. */
export const lasting = (...list) => list.map((seconds) => ({ seconds }));

const top = { at: [1, 1], ids: [5, 6, 7, 8, 9], p: base64(255, 51, 0, 0, 0) };
const two = { computed: [0, 1, 3, 1], kl: [0, 0], confidence: [1, 1], seconds: 0.5, flops: 60 };
const three = { computed: [1, 3], kl: [0.5, 0.5, 0.5], confidence: [0.5, 0.5, 0.5], seconds: 0.5, flops: 80 };
const bytes = { kl: base64(0, 1, 254, 255), confidence: base64(0, 51, 102, 255) };

const document = (lanes, records) => ({
  format: "surelock-trace",
  version: 4,
  header: { model: { name: "m" }, length: 4, steps: 3, prompt_tokens: [10, 11], mask_id: 1, eos_id: 0, lanes },
  pieces: { 0: "", 10: "Once", 11: " upon", 12: "=a", 13: [0xc3], 14: [0xa9] },
  records,
});

/** A document of lanes and their steps: [[decoder, [what a step says beside computing everything, ...]], ...]; timed together. */
export function raceOf(sides, { length = 4, prompt = [10, 11], pieces = {} } = {}) {
  const most = Math.max(...sides.map(([, list]) => list.length));
  const values = { computed: [0, length], kl: new Array(length).fill(0), confidence: new Array(length).fill(1) };
  const records = Array.from({ length: most }, (_, t) =>
    sides.flatMap(([{ id }, list]) => (list[t] ? [record(id, t, { ...values, ...list[t] })] : [])),
  );
  const lanes = sides.map(([own, list]) => ({ ...own, settings: { ...own.settings, steps: list.length } }));
  const made = document(lanes, records.flat());
  const together = [{ lanes: sides.map(([{ id }]) => id) }];
  Object.assign(made.header, { length, steps: most, prompt_tokens: prompt, timed_together: together });
  Object.assign(made.pieces, pieces);
  return made;
}

/** Every position beside locks, timed together. */
export const small = () => {
  const made = document(
    [
      decoder("a", "All", { kind: "everything" }),
      decoder("b", "=Locks", { kind: "lock", epsilon: 0.01, percentile: 20 }),
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
  made.header.timed_together = [{ lanes: ["a", "b"] }];
  return made;
};

/** The document's run with 17 steps more, in which nothing happens: enough to tell a ratio of times. */
export function longer(document, more = {}) {
  const { header, records } = document;
  header.steps += 17;
  for (const { id, settings } of header.lanes) {
    settings.steps += 17;
    for (let step = settings.steps - 17; step < settings.steps; step++) records.push(record(id, step, more[id]));
  }
  return document;
}

const rows = (computed) => ({ ...two, computed, kl: [1, 1], confidence: [1, 1] });

/** The trace, shown like that: {byClock, live, growing}, see `Race`. */
export function shown(trace, race) {
  Object.assign(trace.race, race);
  return trace;
}

/** Rows of a few values, each as a text. */
export const joined = (rows) => rows.map((row) => row.join(" "));

/** One lane that rests, and that a person wrote into, masked and unlocked. */
export const byHand = () =>
  document(
    [decoder("c", "By hand", { kind: "block_cache", dual: true })],
    [
      record("c", 0, { ...rows([2, 2]), unmasked: [[2, 12]], locked: [0] }),
      record("c", 1, { ...rows([0, 1, 3, 1]), masked: [2], unlocked: [0], locked: [0], written: [[3, 13]] }),
      record("c", 2, { ...rows([1, 2]), written: [[3, 14]], unmasked: [[2, 15]] }),
    ],
  );
