// Compute rules: which rows does a step compute? All rules use the same packed forward pass and the same cache.
// `rows(state, active)` chooses rows among the active slots (those that are not locked), before the forward pass.
// `after(state, reading)` decides which slots lock or unlock, after the step's tokens are committed. The rules that
// lock are in locking.js. surelock/decoding/compute.py explains the rules.

import { either, flags, NONE, ranked, take } from "./arrays.js";

/** A KL below this is rounding: such rows count as equally converged. */
const ZERO_KL = 1e-9;
const FLOOR = 0.1; // the weight of a row far from all candidates, see compute.py
const CANDIDATES = 4; // the number of masked rows that are candidates, see compute.py

/** The base class of all rules. */
export class ComputeRule {
  static kind;
  measures = []; // the numbers of candidates that the rule needs; `state.measures` has them for the last commits

  constructor(settings) {
    Object.assign(this, settings);
  }

  /**
   * The slots that a step computes, in ascending order. A locked slot among them is probed. The first step computes
   * all.
   */
  rows(_state, active) {
    return active;
  }

  /** Flags of the rows that the rule follows: their posteriors are kept, and the rule gets their confidence. */
  watches(_state, slots) {
    return new Uint8Array(slots.length);
  }

  /** Flags of the followed rows whose KL from their last posterior the rule gets. By default all followed rows. */
  compares(state, slots) {
    return this.watches(state, slots);
  }

  /** {locked, unlocked}: the slots that lock and unlock now. The state is that after the commit. */
  after(_state, _reading) {
    return { locked: NONE, unlocked: NONE };
  }

  end() {}
}

/** Computes every row, see `Everything` of surelock/decoding/compute.py. */
export class Everything extends ComputeRule {
  static kind = "everything";
}

/** Computes a share of the active rows, see `SelectRule` of surelock/decoding/compute.py. */
export class SelectRule extends ComputeRule {
  static kind = "select";

  rows(state, active) {
    if (this.fraction === 1) return active;
    const count = Math.ceil(this.fraction * active.length - 1e-9);
    const order = ranked(
      active.length,
      (i) => state.computed_at[active[i]],
      (i) => -Math.max(state.kl[active[i]], ZERO_KL),
    );
    return take(active, order.subarray(0, count)).sort();
  }

  watches(_state, slots) {
    return new Uint8Array(slots.length).fill(1);
  }
}

/** See `BlockCache` of surelock/decoding/compute.py. */
export class BlockCache extends ComputeRule {
  static kind = "block_cache";

  rows({ schedule }, active) {
    const [start, stop] = schedule.block;
    if (schedule.steps_in_block === 0) return active;
    return active.filter((slot) => slot >= start && (slot < stop || !this.dual));
  }
}

/** See `DelayedCache` of surelock/decoding/compute.py. */
export class DelayedCache extends ComputeRule {
  static kind = "delayed_cache";

  rows(state, active) {
    const { masked, visible, schedule } = state;
    const step = schedule.steps_in_block;
    if (step < 2 || step % this.refresh === 0) return active;
    return active.filter((slot) => masked[slot] || visible[slot] === 0);
  }
}

/** See `EntropyCache` of surelock/decoding/compute.py. */
export class EntropyCache extends ComputeRule {
  static kind = "entropy_cache";
  measures = ["entropy"];

  rows({ measures, committed_at, masked }, active) {
    if (!measures.entropy || measures.entropy.some((negative) => -negative > this.threshold)) return active;
    const latest = ranked(committed_at.length, (slot) => -committed_at[slot]).subarray(0, this.recent);
    const kept = new Set(latest.filter((slot) => committed_at[slot] >= 0));
    return active.filter((slot) => masked[slot] || kept.has(slot));
  }
}

/** See `BudgetRule` of surelock/decoding/compute.py. */
export class BudgetRule extends ComputeRule {
  static kind = "budget";

  rows(state, active) {
    const read = state.kept("tokens of the last budget", -1);
    const debt = state.kept("debt", 0);
    const last = state.kept("step of the last budget", -2);
    const begins = last[0] !== state.step - 1;
    state.computed_at.forEach((step, slot) => {
      if (step === state.step - 1) debt[slot] = 0;
    });
    const changed = Int32Array.from(state.tokens.keys()).filter((slot) => read[slot] !== state.tokens[slot]);
    read.set(state.tokens);
    last.fill(state.step);
    if (begins) {
      debt.fill(0); // the rule begins, at the start of the run or after another rule: no slot is owed anything
      return active;
    }
    for (const slot of changed)
      for (let other = 0; other < debt.length; other++) debt[other] += 1 / Math.max(Math.abs(other - slot), 1);
    return this.#chosen(state, active, debt);
  }

  /** Flags of the masks of later blocks. Their confidence counts when their block begins. */
  watches(state, slots) {
    return flags(slots.length, (i) => state.masked[slots[i]] && !state.open[slots[i]]);
  }

  compares(_state, slots) {
    return new Uint8Array(slots.length);
  }

  /** The active slots with the greatest worth. */
  #chosen(state, slots, debt) {
    const count = Math.ceil(this.share * state.canvas.total - 1e-9);
    const open = slots.filter((slot) => state.open[slot]);
    const masks = take(
      open,
      ranked(open.length, (i) => -(state.confidence[open[i]] || 0)),
    );
    const next = new Set(masks.subarray(0, Math.ceil(count / 3)));
    const unseen = (slot) => !state.masked[slot] && state.visible[slot] === 0;
    const rank = (slot) => (unseen(slot) ? 0 : 2 - next.has(slot));
    const nearness = this.#nearness(slots, masks.subarray(0, CANDIDATES));
    const order = ranked(
      slots.length,
      (i) => rank(slots[i]),
      (i) => -(debt[slots[i]] * nearness[i]),
    );
    return take(slots, order.subarray(0, count)).sort();
  }

  /** The weights of the slots' debts. */
  #nearness(slots, candidates) {
    const counted = new Float64Array(slots.length).fill(1);
    if (!candidates.length) return counted;
    return counted.map((_, i) => {
      const distance = candidates.reduce((least, slot) => Math.min(least, Math.abs(slots[i] - slot)), Infinity);
      return FLOOR + Math.exp(-distance / this.near);
    });
  }
}

/** A pair of rules: one locks, and the other chooses among the slots that are not locked. */
export class Both extends ComputeRule {
  static kind = "both";

  constructor(rules) {
    super(rules);
    this.measures = [...this.lock.measures, ...this.select.measures];
  }

  rows(state, active) {
    return this.lock.rows(state, this.select.rows(state, active));
  }

  watches(state, slots) {
    return either(this.lock.watches(state, slots), this.select.watches(state, slots));
  }

  compares(state, slots) {
    return either(this.lock.compares(state, slots), this.select.compares(state, slots));
  }

  after(state, reading) {
    return this.lock.after(state, reading);
  }

  end() {
    this.lock.end();
  }
}
