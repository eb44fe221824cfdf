// Unpacks the record of a step: positions from a run-length code, numbers from bytes.

import { check, damaged, isCount, isText, listOf, maybe, orNothing } from "./damage.js";

const TOP = 5; // the number of likely tokens of a position

const KL_OF_BYTE = Float32Array.from({ length: 256 }, (_, b) => {
  if (b === 0) return 0;
  return b === 255 ? Infinity : 1e-12 * 10 ** ((14 * (b - 1)) / 253);
});

const POSITIONS = [listOf(isCount), "a list of positions"];
const PAIRS = [listOf((pair) => listOf(isCount)(pair) && pair.length === 2), "a list of positions and tokens"];
const AMOUNT = [(value) => Number.isFinite(value) && value >= 0, "a number from 0"];
const isValue = orNothing((value) => typeof value === "number");
const VALUES = [(value) => isText(value) || listOf(isValue)(value), "numbers, or bytes in base64"];
const RECORD = {
  masked: maybe(POSITIONS),
  taken_back: maybe(POSITIONS),
  written: maybe(PAIRS),
  unlocked: maybe(POSITIONS),
  unmasked: PAIRS,
  filled: maybe(PAIRS),
  spared: maybe([isCount, "a number of steps"]),
  shares: maybe([listOf(listOf((value) => AMOUNT[0](value))), "shares of words"]),
  locked: POSITIONS,
  computed: POSITIONS,
  kl: VALUES,
  confidence: VALUES,
  guess: maybe([isText, "bytes in base64"]),
  seconds: AMOUNT,
  flops: AMOUNT,
  baseline_flops: AMOUNT,
  commit_error: maybe([listOf(isValue), "a list of numbers"]),
  changed: maybe(POSITIONS),
  regret: [isValue, "a number"],
};
const TOPS = { at: POSITIONS, ids: [listOf(isCount), "a list of token ids"], p: [isText, "bytes in base64"] };

function bytesOf(text) {
  let binary;
  try {
    binary = atob(text);
  } catch {
    throw damaged("a row of bytes is not base64");
  }
  const bytes = new Uint8Array(binary.length); // filled by a loop: `Uint8Array.from` takes ten times as long
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/**
 * The positions that a run-length code [start, length, start, length, ...] lists.
 * n: the number of positions of the sequence.
 */
function fromRuns(runs, n) {
  if (runs.length % 2) throw damaged("a list of positions is incomplete");
  const positions = [];
  for (let i = 0, last = 0; i < runs.length; i += 2) {
    const start = runs[i];
    const end = start + runs[i + 1];
    if (start < last || end > n) throw damaged("a record names positions out of order or outside the sequence");
    for (let p = start; p < end; p++) positions.push(p);
    last = end;
  }
  return positions;
}

/** The positions. Throws TraceError if one is not below n. */
export function within(positions, n) {
  if (positions.some((p) => p >= n)) throw damaged("a record names a position outside the sequence");
  return positions;
}

/**
 * The values of rows, from bytes in base64 or from numbers.
 * ofByte(byte): returns the number of a byte. nothing: the number that a null is read as.
 */
function valuesOf(values, rows, ofByte, nothing, what) {
  const list = isText(values) ? bytesOf(values) : values;
  const read = isText(values) ? ofByte : (value) => value ?? nothing;
  if (list.length !== rows.length) throw damaged(`a step has another number of ${what} values than computed positions`);
  const numbers = new Float32Array(list.length);
  for (let i = 0; i < numbers.length; i++) numbers[i] = read(list[i]);
  return numbers;
}

/** The token ids of `count` guesses, [] if none were recorded. An id has 2 or 3 bytes, the lowest first. */
export function guessesOf(text, count) {
  if (text === undefined) return [];
  const bytes = bytesOf(text);
  const width = bytes.length === 3 * count ? 3 : 2;
  if (bytes.length !== width * count) throw damaged("a step has another number of guesses than computed masks");
  const guesses = new Int32Array(count);
  for (let i = 0; i < bytes.length; i++) guesses[Math.floor(i / width)] |= bytes[i] << (8 * (i % width));
  return guesses;
}

/**
 * The likely tokens of a step: {index, ids, p}.
 * index: a Map from a position to its place. Every place has TOP token ids, and TOP bytes for their probabilities.
 */
function topsOf(top, n) {
  check(top, TOPS, "the likely tokens of a step");
  const rows = fromRuns(top.at, n);
  const p = bytesOf(top.p);
  if (top.ids.length !== TOP * rows.length || p.length !== top.ids.length)
    throw damaged(`a step must list ${TOP} likely tokens and ${TOP} probabilities for every position that it names`);
  return { index: new Map(rows.map((row, i) => [row, i])), ids: Int32Array.from(top.ids), p };
}

/** [[id, p], ...]: the likely tokens of place i in a result of `topsOf`. */
export const likely = ({ ids, p }, i) =>
  Array.from({ length: TOP }, (_, k) => [ids[i * TOP + k], p[i * TOP + k] / 255]);

/** The unpacked record of a sequence with n positions. Throws TraceError. */
export function unpack(record, n) {
  check(record, RECORD, "a record");
  const { masked = [], taken_back: back = [], written, unlocked, unmasked, locked, computed, kl, confidence } = record;
  const { guess, top, filled = [] } = record;
  const rows = fromRuns(computed, n);
  for (const pairs of [written ?? [], unmasked, filled])
    within(
      pairs.map(([p]) => p),
      n,
    );
  return {
    masked: within([...masked, ...back], n),
    back,
    written: written ?? [],
    unlocked: within(unlocked ?? [], n),
    unmasked,
    filled,
    shares: record.shares ?? [],
    locked: within(locked, n),
    rows,
    kl: valuesOf(kl, rows, (b) => KL_OF_BYTE[b], Infinity, "KL"),
    confidence: valuesOf(confidence, rows, (b) => b / 255, NaN, "confidence"),
    guess,
    top: top === undefined ? null : topsOf(top, n),
  };
}
