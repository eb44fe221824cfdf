// Unmasking policies (Algorithm 1, line 16): which masked positions does a step commit? See
// surelock/decoding/unmasking.py. The last step of a block commits all of its masked positions, whatever the policy
// says.
//
// Candidates are {state, slots, tokens, score, late, quota}: the masked positions that this step computed and may
// commit, in order of position. late: 1 if the token ends the text and the setting suppress_eos_confidence wants such
// tokens committed last, otherwise 0.

import { count, find, flags, NONE, ranked, take, union } from "./arrays.js";
import { evenQuotas } from "./state.js";

/**
 * The indices of the candidates in open slots (masks of the present block and before it), best score first, ties by
 * position, late candidates last.
 */
const inOrder = ({ state, slots, score, late }) =>
  ranked(
    slots.length,
    (i) => late[i],
    (i) => -score[i],
  ).filter((i) => state.open[slots[i]]);

/**
 * The base class of all policies.
 * scores: the number that ranks the candidates: "confidence", "entropy" (negative, in nats), "margin" or "noise"
 *   (uniform random).
 * early: whether a block ends as soon as nothing in the block is masked, even if the block has steps left.
 * by_posterior: whether the policy commits the best `quota` candidates by a score that does not depend on the tokens
 *   drawn for the candidates. Only the best `quota` candidates then need a drawn token.
 * measures: further numbers of the candidates that the policy needs.
 * revises: whether the policy takes tokens back.
 */
class UnmaskPolicy {
  static kind;
  scores = "confidence";
  early = false;
  by_posterior = false;
  measures = [];
  revises = false;

  constructor(settings) {
    Object.assign(this, settings);
  }

  /**
   * By step of a block, the number of commits that the step owes.
   * masks: the number of masks of the block. steps: the number of steps that the schedule allots to the block; the list
   *   may be longer (see Remask).
   */
  quotas = (masks, steps) => evenQuotas(masks, steps);

  /** The slots that are masked again before a step. */
  takesBack(_state) {
    return NONE;
  }

  /** Flags of the rows that the step may commit. */
  chooses(state, slots) {
    return take(state.open, slots);
  }

  /** Flags of the rows whose posterior is kept and whose KL is computed for the policy, see `ComputeRule.watches`. */
  watches(_state, slots) {
    return new Uint8Array(slots.length);
  }

  /** Called once in every step, before the commits. */
  prepare(_state, _reading) {}

  /** The candidates that are committed: by default the best ones, as many as the schedule asks for. */
  take(candidates) {
    return inOrder(candidates).subarray(0, candidates.quota);
  }

  /** [slots, tokens]: the commits of this step, with ascending slots. */
  commits(candidates) {
    const { state, slots, tokens } = candidates;
    const taken = union(this.take(candidates), state.schedule.closing ? inOrder(candidates) : NONE);
    return [take(slots, taken), take(tokens, taken)];
  }
}

/** See `LowConfidence` of surelock/decoding/unmasking.py. */
export class LowConfidence extends UnmaskPolicy {
  static kind = "low_confidence";
}

/** See `Random` of surelock/decoding/unmasking.py. */
export class Random extends UnmaskPolicy {
  static kind = "random";
  scores = "noise";
}

/** See `Entropy` of surelock/decoding/unmasking.py. */
export class Entropy extends UnmaskPolicy {
  static kind = "entropy";
  scores = "entropy";
  by_posterior = true;
}

/** See `Margin` of surelock/decoding/unmasking.py. */
export class Margin extends UnmaskPolicy {
  static kind = "margin";
  scores = "margin";
  by_posterior = true;
}

/** See `Threshold` of surelock/decoding/unmasking.py. */
export class Threshold extends UnmaskPolicy {
  static kind = "threshold";
  early = true;

  take(candidates) {
    const { score, late } = candidates;
    const above = count(flags(score.length, (i) => score[i] > this.p && !late[i]));
    return inOrder(candidates).subarray(0, Math.max(1, above));
  }
}

/** See `Klass` of surelock/decoding/unmasking.py. */
export class Klass extends UnmaskPolicy {
  static kind = "klass";
  early = true;

  watches(state, slots) {
    return take(state.masked, slots);
  }

  prepare(state, reading) {
    const still = state.kept("klass_still", 0);
    reading.slots.forEach((slot, row) => {
      still[slot] = reading.kl[row] < this.kl ? still[slot] + 1 : 0;
    });
  }

  take(candidates) {
    const { state, slots, score, late } = candidates;
    if (state.schedule.steps_in_block >= this.history - 1) {
      const still = state.kept("klass_still", 0);
      const isReady = (i) => still[slots[i]] >= this.history && score[i] > this.confidence && !late[i];
      const ready = Int32Array.from(slots.keys()).filter(isReady);
      if (ready.length) return ready;
    }
    return inOrder(candidates).subarray(0, state.schedule.share);
  }
}

/** See `EntropyBound` of surelock/decoding/unmasking.py. */
export class EntropyBound extends UnmaskPolicy {
  static kind = "entropy_bound";
  scores = "entropy";
  early = true;

  take(candidates) {
    const { score, late } = candidates;
    const order = inOrder(candidates);
    let ignored = 0; // the entropies of the candidates before this one
    let within = 0;
    for (const i of order) {
      if (ignored <= this.gamma && !late[i]) within += 1;
      ignored += Math.max(-score[i], 0);
    }
    return order.subarray(0, Math.max(1, within));
  }
}

/** See `EarlyFinish` of surelock/decoding/unmasking.py. */
export class EarlyFinish extends UnmaskPolicy {
  static kind = "early_finish";
  early = true;
  measures = ["gap"];

  chooses(state, slots) {
    return take(state.masked, slots);
  }

  take(candidates) {
    const { state, slots } = candidates;
    const share = (state.step + 1) / state.schedule.steps;
    const least = [this.first, this.middle, this.last][(share >= 0.33) + (share >= 0.67)];
    const from = state.canvas.generated_from + this.answer - 1;
    const deciding = slots.filter((slot) => !this.answer || (slot >= from && slot < from + 5));
    const gaps = take(state.measures.gap, deciding);
    const gap = gaps.reduce((sum, value) => sum + value, 0) / deciding.length;
    return gap >= least ? Int32Array.from(slots.keys()) : inOrder(candidates).subarray(0, candidates.quota);
  }
}

/** See `Remask` of surelock/decoding/unmasking.py. */
export class Remask extends UnmaskPolicy {
  static kind = "remask";
  revises = true;

  quotas = (masks, steps) => {
    const even = evenQuotas(masks, steps);
    const begins = this.#begins(steps);
    return [...even.slice(0, begins), ...Array(steps).fill(this.taken_back), ...even.slice(begins)];
  };

  takesBack({ schedule, score, locked }) {
    const steps = schedule.steps_of_block / 2;
    const at = schedule.steps_in_block - this.#begins(steps);
    if (at < 0 || at >= steps || schedule.closing) return NONE;
    const [start, stop] = schedule.block;
    const free = (slot) => slot >= start && slot < stop && !locked[slot] && !Number.isNaN(score[slot]);
    const slots = find(flags(score.length, free));
    const order = ranked(slots.length, (i) => score[slots[i]]);
    return take(slots, order.subarray(0, this.taken_back)).sort();
  }

  #begins(steps) {
    return Math.floor(this.begins * steps + 1e-9);
  }
}
