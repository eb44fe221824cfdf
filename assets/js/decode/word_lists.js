// Word lists: a blank with a list becomes one of the list's words. They mirror surelock/decoding/word_lists.py.
//
// A list is {at, words}: the position of the blank's first mask, and the token ids of the words. When a run begins, all
// words of a list must have the same number of tokens, see `settled`.

import { find, flags, NONE, put } from "./arrays.js";

const size = ({ words }) => Math.max(...words.map(({ length }) => length));
const slotsOf = (list) => Int32Array.from({ length: size(list) }, (_, k) => list.at + k);
const isSettled = ({ words }) => words.every(({ length }) => length === words[0].length);

/** The lists of a run, with the slots of their blanks. Throws a RangeError for a list that does not fit the prompt. */
export function slotLists(lists, prompt, { network, mask_id }) {
  const isWord = (token) => token >= 0 && token < network.vocab_size && token !== mask_id;
  return lists.map((list) => {
    const slots = slotsOf(list);
    if (!isSettled(list) || !list.words.flat().every(isWord) || slots.some((slot) => prompt[slot] !== mask_id))
      throw new RangeError(`prompt 0 has a list at position ${list.at} that it cannot have`);
    return { ...list, slots };
  });
}

/** The rows whose logits the lists need: the candidates in blanks with a list. */
export function listedRows({ lists }, slots, chooses) {
  if (!lists.length) return NONE;
  const inside = new Set(lists.flatMap((list) => Array.from(list.slots)));
  return find(flags(slots.length, (row) => chooses[row] && inside.has(slots[row])));
}

/**
 * Sets the tokens of candidates in blanks with a list to the tokens of the best word, and their scores to its score.
 * Returns the shares of the words, as `Shares` of surelock/decoding/step.py without the sequence.
 */
export function putWords({ lists, policy, state }, plan, reading) {
  if (!plan.listed.length) return [];
  const width = reading.listed.length / plan.listed.length;
  const numbers = new Map(Array.from(find(plan.chooses), (row, number) => [plan.slots[row], number]));
  const rows = new Map(Array.from(plan.listed, (row, i) => [plan.slots[row], i]));
  const shares = [];
  for (const { at, words, slots } of lists) {
    const agrees = (word) => slots.every((slot, k) => state.masked[slot] || state.tokens[slot] === word[k]);
    const places = Array.from(slots.keys()).filter((k) => rows.has(slots[k]));
    const agreeing = words.filter(agrees);
    if (!places.length || !agreeing.length) continue;
    const byToken = (word) => places.map((k) => reading.listed[rows.get(slots[k]) * width + word[k]]);
    const sums = agreeing.map((word) => byToken(word).reduce((sum, logP) => sum + logP, 0));
    const most = Math.max(...sums);
    const best = agreeing[sums.indexOf(most)];
    for (const [i, k] of places.entries()) {
      const number = numbers.get(slots[k]);
      reading.tokens[number] = best[k];
      if (policy.scores === "confidence") reading.score[number] = Math.exp(byToken(best)[i]);
    }
    const weights = sums.map((sum) => Math.exp(sum - most));
    const whole = weights.reduce((sum, weight) => sum + weight, 0);
    const share = (word) => (agrees(word) ? weights[agreeing.indexOf(word)] / whole : 0);
    shares.push({ position: at, shares: Float64Array.from(words, share) });
  }
  return shares;
}

/** The log-probabilities of rows of logits. Both are flat tables of `width` columns. */
export function logSoftmax(logits, width) {
  const table = Float64Array.from(logits);
  for (let start = 0; start < table.length; start += width) {
    const row = table.subarray(start, start + width);
    const most = row.reduce((a, b) => Math.max(a, b));
    const total = Math.log(row.reduce((sum, value) => sum + Math.exp(value - most), 0));
    for (let i = 0; i < width; i++) row[i] = row[i] - most - total;
  }
  return table;
}

/**
 * {ids, lists} of a prompt in which all words of a list have the same number of tokens. It mirrors `settled` of
 * surelock/decoding/word_lists.py. masks: the number of masks after the prompt.
 */
export async function settled(engine, { network, mask_id }, { ids, lists }, masks) {
  let moved = 0;
  const settledLists = [];
  let tokens = Array.from(ids);
  for (const list of lists) {
    const at = list.at - moved;
    const before = tokens.slice(0, at);
    const behind = tokens.slice(at + size(list));
    let best = Number.NEGATIVE_INFINITY;
    let length = size(list);
    const sizes = new Set(list.words.map((word) => word.length));
    const compared = sizes.size > 1 ? Array.from(sizes).sort((a, b) => a - b) : [];
    for (const wordLength of compared) {
      const blank = new Array(wordLength).fill(mask_id);
      const canvas = Int32Array.from([...before, ...blank, ...behind, ...new Array(masks).fill(mask_id)]);
      const logP = await logPs(engine, canvas, slotsOf({ at, words: [blank] }), mask_id);
      for (const word of list.words) {
        if (word.length !== wordLength) continue;
        const total = word.reduce((sum, token, k) => sum + logP[k * network.vocab_size + token], 0);
        const mean = total / wordLength;
        if (mean > best) {
          best = mean;
          length = wordLength;
        }
      }
    }
    tokens = [...before, ...new Array(length).fill(mask_id), ...behind];
    settledLists.push({ at, words: list.words.filter((word) => word.length === length) });
    moved += size(list) - length;
  }
  return { ids: tokens, lists: settledLists };
}

/** The log-probabilities of some rows of a canvas, whose rows are all computed. */
async function logPs(engine, tokens, rows, mask_id) {
  const none = new Uint8Array(tokens.length);
  const chooses = none.slice();
  put(chooses, rows, 1);
  const plan = {
    ...{ step: 0, slots: tokens.map((_, i) => i), tokens, blind: null, probed: none, watches: none, compares: none },
    ...{ chooses, observe: false, read: rows, outdated: NONE, scores: "confidence", measures: [], quota: null },
    ...{ banned: [mask_id], barred: [NONE, NONE], temperature: 0, draws: null, cfg_scale: 0, top_k: 0 },
  };
  const memory = engine.memory({ length: tokens.length, passes: 1 });
  await engine.read(memory, plan);
  const logits = await engine.logits(memory, rows);
  return logSoftmax(logits, logits.length / rows.length);
}
