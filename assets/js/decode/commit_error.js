// What skipping rows changed, as surelock/quality/commit_error.py measures it.

import { find, largest, NONE, place, put } from "./arrays.js";

const MOST_WORDS = 2 ** 15; // of a vocabulary: beyond it the logits of all candidates cost as much as the shadow

/** Collects a run's steps, which hold the logits of what they committed, and computes their commit errors. */
export class Shadow {
  #waiting = [];
  #scores = null;

  constructor(engine, shape, settings) {
    Object.assign(this, { engine, shape, settings });
  }

  add(step) {
    const { index, computed, newly_unmasked: unmasked } = step;
    if (index === 0 && this.shape.network.vocab_size <= MOST_WORDS) this.#scores = step.scores;
    const committed = find(unmasked);
    if (!committed.length) return;
    const filled = step.ended?.filled ?? [];
    const tokens = step.tokens.map((token, i) => (unmasked[i] || filled[i] ? this.shape.mask_id : token));
    const candidates = this.#scores === null ? committed : find(step.open);
    const skipped = computed.includes(0);
    const { given, commit_logits: logits } = step;
    this.#waiting.push({ step: index, tokens, given, committed, candidates, skipped, logits });
  }

  /** A shadow of the same steps, to which others can be added. */
  copy() {
    const made = new Shadow(this.engine, this.shape, this.settings);
    made.#waiting = [...this.#waiting];
    made.#scores = this.#scores;
    return made;
  }

  /** Yields of each step that committed, in their order, {step, position, error, changed, regret}: its commits' places
   * and, of each, what `CommitError` says. */
  async *result() {
    for (const waiting of this.#waiting.splice(0)) {
      const { step, committed: position, skipped } = waiting;
      const none = position.length;
      const zeros = { error: new Float64Array(none), changed: new Uint8Array(none) };
      const regret = new Float64Array(none).fill(this.#scores === null ? Number.NaN : 0);
      yield { step, position, ...(skipped ? await this.#compared(waiting, regret) : { ...zeros, regret }) };
    }
  }

  async #compared({ tokens, given, committed, candidates, logits: other }, none) {
    const memory = this.engine.memory({ length: tokens.length, passes: this.settings.cfg_scale > 0 ? 2 : 1 });
    const { score } = await this.engine.read(memory, this.#plan(tokens, given, candidates));
    const z = await this.engine.logits(memory, committed);
    const width = this.shape.network.vocab_size;
    const rows = Array.from(committed, (_, i) => [z, other].map((each) => each.subarray(i * width, (i + 1) * width)));
    const error = Float64Array.from(rows, ([full, part]) => klDivergence(full, part));
    const changed = Uint8Array.from(
      rows,
      ([full, part]) => part.every(Number.isFinite) && largest(full) !== largest(part),
    );
    const regret = this.#scores === null ? none : less(score, candidates, committed);
    return { error, changed, regret };
  }

  /** The first step of a sequence: every row is computed, and those `candidates` are scored. */
  #plan(tokens, given, candidates) {
    const { mask_id, ends } = this.shape;
    const { suppress_eos, cfg_scale } = this.settings;
    const inner = Array.from({ length: place(candidates, given.lastIndexOf(1)) }, (_, row) => row);
    const none = new Uint8Array(tokens.length);
    const chooses = none.slice();
    put(chooses, candidates, 1);
    return {
      step: 0,
      slots: tokens.map((_, i) => i),
      tokens,
      blind: cfg_scale > 0 ? tokens.map((token, i) => (given[i] ? mask_id : token)) : null,
      probed: none,
      watches: none,
      compares: none,
      chooses,
      observe: false,
      read: candidates,
      outdated: NONE,
      scores: this.#scores,
      measures: [],
      quota: null,
      banned: [mask_id, ...(suppress_eos ? ends.slice(0, 1) : [])],
      barred: [inner.flatMap((row) => ends.map(() => row)), inner.flatMap(() => ends)].map((list) =>
        Int32Array.from(list),
      ),
      temperature: 0,
      draws: null,
      cfg_scale,
      top_k: 0,
    };
  }
}

/** How much less than the best the committed ones of some scores are, in their order: each beside the best score of its
 * own rank. */
function less(scores, candidates, committed) {
  const place = new Map(Array.from(candidates, (slot, i) => [slot, i]));
  const chosen = Float64Array.from(committed, (slot) => scores[place.get(slot)]);
  const best = Float64Array.from(scores).sort().reverse();
  const found = new Float64Array(chosen.length);
  const ranks = Array.from(chosen.keys()).sort((i, j) => chosen[j] - chosen[i]);
  for (const [rank, i] of ranks.entries()) found[i] = best[rank] - chosen[i];
  return found;
}

/** KL(p || q) in nats of p = softmax(logits) from q = softmax(other). */
function klDivergence(logits, other) {
  const [logP, logQ] = [logits, other].map(logSoftmax);
  let sum = 0;
  for (let i = 0; i < logP.length; i++) {
    const difference = logQ[i] - logP[i];
    sum += Math.exp(logP[i]) * (Math.expm1(difference) - difference);
  }
  return sum;
}

function logSoftmax(logits) {
  const most = logits.reduce((a, b) => Math.max(a, b));
  const shifted = Float64Array.from(logits, (value) => value - most);
  const total = Math.log(shifted.reduce((sum, value) => sum + Math.exp(value), 0));
  return shifted.map((value) => value - total);
}
