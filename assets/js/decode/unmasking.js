// UpdateMASK (Algorithm 1, line 16): which masked positions does a step commit? See surelock/decoding/unmasking.py. In the
// last step of a block everything that is still masked there is committed, whatever the policy says.
//
// Candidates are {state, slots, tokens, score, late, quota}: the masked positions that this step computed and may commit,
// in order of position. late: would end the text, and is committed last.

import { count, flags, ranked, take } from "./arrays.js";

/** The order of committing: high scores first, the lowest position first among equals, late ones behind all. */
const inOrder = ({ slots, score, late }) =>
  ranked(
    slots.length,
    (i) => late[i],
    (i) => -score[i],
  );

/** What all policies share. scores: what candidates are scored by; "noise", one uniform number each.
 * early: a block may end before its steps. by_posterior: it commits the best by posterior, as many as the schedule asks
 * for, whatever their tokens. */
class UnmaskPolicy {
  static kind;
  scores = "confidence";
  early = false;
  by_posterior = false;

  constructor(settings) {
    Object.assign(this, settings);
  }

  /** Which of the rows that a step computes it follows, and whose KL it goes by, see `ComputeRule.watches`. */
  watches(_state, slots) {
    return new Uint8Array(slots.length);
  }

  /** Called once a step, before it commits. */
  prepare(_state, _reading) {}

  /** Which of the candidates are committed: by default as many of the best as the schedule asks for. */
  take(candidates) {
    return inOrder(candidates).subarray(0, candidates.quota);
  }

  /** [slots, tokens] that this step commits, slots ascending. */
  commits(candidates) {
    const { state, slots, tokens } = candidates;
    if (state.schedule.closing) return [slots, tokens];
    const taken = this.take(candidates).slice().sort();
    return [take(slots, taken), take(tokens, taken)];
  }
}

export class LowConfidence extends UnmaskPolicy {
  static kind = "low_confidence";
}

export class Random extends UnmaskPolicy {
  static kind = "random";
  scores = "noise";
}

export class Entropy extends UnmaskPolicy {
  static kind = "entropy";
  scores = "entropy";
  by_posterior = true;
}

export class Margin extends UnmaskPolicy {
  static kind = "margin";
  scores = "margin";
  by_posterior = true;
}

export class Threshold extends UnmaskPolicy {
  static kind = "threshold";
  early = true;

  take(candidates) {
    const { score, late } = candidates;
    const above = count(flags(score.length, (i) => score[i] > this.p && !late[i]));
    return inOrder(candidates).subarray(0, Math.max(1, above));
  }
}

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

export class EntropyBound extends UnmaskPolicy {
  static kind = "entropy_bound";
  scores = "entropy";
  early = true;

  take(candidates) {
    const { score, late } = candidates;
    const order = inOrder(candidates);
    let [ignored, within] = [0, 0]; // all but the largest, which comes last
    for (const i of order) {
      if (ignored <= this.gamma && !late[i]) within += 1;
      ignored += Math.max(-score[i], 0);
    }
    return order.subarray(0, Math.max(1, within));
  }
}
