// Commit errors: what skipping rows has changed. They mirror surelock/quality/commit_error.py.

import { find, largest, NONE, place, put } from "./arrays.js";

// The largest vocabulary; with a larger one, all candidates' logits cost as much as the shadow.
const MOST_WORDS = 2 ** 15;

/** Collects a run's steps with the logits of their commits, and computes the commit errors. */
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

  /** A copy of this shadow, to which other steps can be added. */
  copy() {
    const shadow = new Shadow(this.engine, this.shape, this.settings);
    shadow.#waiting = [...this.#waiting];
    shadow.#scores = this.#scores;
    return shadow;
  }

  /**
   * Yields {step, position, error, changed, regret} for every step with commits, in order.
   * position: the positions of the commits. error, changed, regret: one value per commit, see `CommitError`.
   */
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
    const rowOf = (logits, i) => logits.subarray(i * width, (i + 1) * width);
    const rows = Array.from(committed, (_, i) => [rowOf(z, i), rowOf(other, i)]);
    const error = Float64Array.from(rows, ([full, part]) => klDivergence(full, part));
    const differs = ([full, part]) => part.every(Number.isFinite) && largest(full) !== largest(part);
    const changed = Uint8Array.from(rows, differs);
    const regret = this.#scores === null ? none : less(score, candidates, committed);
    return { error, changed, regret };
  }

  /** The plan of a step that computes every row of a sequence, and scores the rows `candidates`. */
  #plan(tokens, given, candidates) {
    const { mask_id, ends } = this.shape;
    const { suppress_eos, cfg_scale } = this.settings;
    const inner = Array.from({ length: place(candidates, given.lastIndexOf(1)) }, (_, row) => row);
    const barredRows = inner.flatMap((row) => ends.map(() => row));
    const barredTokens = inner.flatMap(() => ends);
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
      barred: [Int32Array.from(barredRows), Int32Array.from(barredTokens)],
      temperature: 0,
      draws: null,
      cfg_scale,
      top_k: 0,
    };
  }
}

/**
 * The regrets of committed candidates, in order: how much lower a score is than the best possible score of the same
 * rank.
 * The best committed candidate is compared with the best of all candidates, the second with the second, and so on.
 */
function less(scores, candidates, committed) {
  const place = new Map(Array.from(candidates, (slot, i) => [slot, i]));
  const chosen = Float64Array.from(committed, (slot) => scores[place.get(slot)]);
  const best = Float64Array.from(scores).sort().reverse();
  const regrets = new Float64Array(chosen.length);
  const ranks = Array.from(chosen.keys()).sort((i, j) => chosen[j] - chosen[i]);
  for (const [rank, i] of ranks.entries()) regrets[i] = best[rank] - chosen[i];
  return regrets;
}

/** KL(p || q) in nats, with p = softmax(logits) and q = softmax(other). */
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
