// Rules that lock: Algorithm 1, lines 17-24, the appendix' optional unlocking, and a control. All decisions depend on
// the rows' KLs and uncertainties. See surelock/decoding/locking.py.

import { find, flags, NONE, ranked, take, union } from "./arrays.js";
import { ComputeRule } from "./compute.js";

/** The m-th percentile as the lower order statistic, sorted(values)[floor(m (n - 1) / 100)]. */
function percentile(values, m) {
  return Float64Array.from(values).sort()[Math.floor((m * (values.length - 1)) / 100)];
}

/** The base class of rules that compute all active rows, and lock some candidates in every step. */
class LockingRule extends ComputeRule {
  /**
   * The converged slots among the candidates Z (line 20), which are active, unmasked, and visible for `wait` passes.
   */
  locked(state, reading, wait) {
    // The paper's text lets a position lock in the step that unmasks it, before any other position has seen its token.
    // Here the token must have been visible for `wait` passes.
    const isCandidate = (slot, row) => !reading.probed[row] && !state.masked[slot] && state.visible[slot] >= wait;
    const z = find(Uint8Array.from(reading.slots, isCandidate));
    const passes = z.length ? this.converged(state, reading, z) : NONE;
    return take(
      reading.slots,
      z.filter((_, i) => passes[i]),
    );
  }
}

/** The paper's rule, see `LockRule` of surelock/decoding/locking.py. */
export class LockRule extends LockingRule {
  static kind = "lock";

  /**
   * Flags of the rows that may lock in this step or in the next step that computes them. Masks that stay are left out.
   * All rows are followed if a row may lock as soon as it is written, and if locked rows are probed.
   */
  watches(state, slots) {
    if (this.#followsAll()) return new Uint8Array(slots.length).fill(1);
    return flags(slots.length, (i) => {
      const masked = state.masked[slots[i]];
      const seen = state.visible[slots[i]] + !masked; // after this step
      return seen + 1 >= this.visible_steps && (!masked || state.open[slots[i]]);
    });
  }

  compares(state, slots) {
    const all = this.#followsAll();
    return this.watches(state, slots).map((watches, i) => watches && (all || !state.masked[slots[i]]));
  }

  #followsAll() {
    return !this.visible_steps || this.unlock !== null;
  }

  /** The active rows (line 6) without masks that rest, and, if locks can be undone, the locked rows to probe. */
  rows(state, active) {
    const computed = this.future ? active.filter((slot) => !this.#rests(state, slot)) : active;
    if (this.unlock === null || state.step === 0 || state.step % this.unlock.period) return computed;
    return union(computed, this.#probes(state, this.unlock.budget));
  }

  after(state, reading) {
    const unlocked = this.unlock === null ? NONE : this.#drifted(state, reading, this.unlock);
    return { locked: this.locked(state, reading, this.visible_steps), unlocked };
  }

  /**
   * Flags of the candidates that lock (lines 21-23): D <= epsilon, and u <= theta if there is a percentile.
   * z: the rows of the candidates in the reading.
   */
  converged(state, reading, z) {
    const slots = take(reading.slots, z);
    const kl = take(reading.kl, z);
    const uncertainty = take(reading.confidence, z).map((confidence) => 1 - confidence); // line 18
    const theta = this.percentile === null ? null : percentile(uncertainty, this.percentile);
    return flags(z.length, (i) => {
      if (!(kl[i] <= this.epsilon) || (theta !== null && !(uncertainty[i] <= theta))) return false;
      const unlocked = this.unlock === null ? -1 : state.unlocked_at[slots[i]];
      if (unlocked < 0) return true;
      return state.step > unlocked + this.unlock.cooldown && kl[i] <= this.unlock.rho * this.epsilon;
    });
  }

  /** Whether a slot is a mask of a later block, in a step that does not begin a block. */
  #rests({ schedule, open, masked }, slot) {
    return schedule.steps_in_block > 0 && !open[slot] && masked[slot];
  }

  /** At most `budget` locked slots to probe in this step: the least recently probed ones, among equals the lowest. */
  #probes(state, budget) {
    const locked = find(state.locked);
    return take(locked, ranked(locked.length, (i) => state.probed_at[locked[i]]).subarray(0, budget)).sort();
  }

  /** The probed slots that meet the appendix' three conditions. theta is the percentile over the active rows. */
  #drifted(state, reading, unlock) {
    const uncertainty = reading.confidence.map((confidence) => 1 - confidence);
    const active = uncertainty.filter((_, row) => !reading.probed[row]);
    const gated = this.percentile !== null && active.length > 0;
    const theta = gated ? percentile(active, this.percentile) : 0;
    return reading.slots.filter(
      (slot, row) =>
        reading.probed[row] &&
        reading.kl[row] > unlock.epsilon_unlock &&
        state.step - state.locked_at[slot] > unlock.min_interval &&
        (!gated || uncertainty[row] > theta),
    );
  }
}

/** The control, see `LockByAge` of surelock/decoding/locking.py. */
export class LockByAge extends LockingRule {
  static kind = "age";

  after(state, reading) {
    return { locked: this.locked(state, reading, this.steps), unlocked: NONE };
  }

  converged(_state, _reading, z) {
    return new Uint8Array(z.length).fill(1);
  }
}
