// One decoder's run of the prompt, unpacked into typed arrays, so that any step can be drawn at once.

import { damaged } from "./damage.js";
import { guessesOf, likely, unpack, within } from "./record.js";
import { ACTIVE, LOCKED, MASKED, RESTING, WAITING } from "./states.js";

/** The quantile q of ascending values, interpolated linearly; NaN if there are none. */
export const quantile = (sorted, q) => {
  if (!sorted.length) return NaN;
  const at = q * (sorted.length - 1);
  const low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
};

/** The 10 % quantile, the median and the 90 % quantile of the finite KL values of a step. */
function band(kl) {
  const values = kl.filter(Number.isFinite).sort();
  return { low: quantile(values, 0.1), median: quantile(values, 0.5), high: quantile(values, 0.9) };
}

const positionsOf = (pairs) => pairs.map(([position]) => position);

/** The tokens of all positions before the first step, -1 for a masked position. */
export const opening = ({ prompt_tokens: prompt, mask_id, length }) =>
  Int32Array.from({ length }, (_, p) => (p < prompt.length && prompt[p] !== mask_id ? prompt[p] : -1));

/** The entry of a lane's `changes` that describes a position after step t. */
function standing(lane, position, t) {
  const list = lane.changes[position];
  const s = lane.clamp(t);
  let i = list.length - 1;
  while (list[i][0] > s) i--;
  return list[i];
}

/**
 * One decoder's run of the prompt. `decoder` is the decoder's entry in the header.
 * The value of a step and a position has the index step * n + position. It is NaN if the step did not compute the
 * position. A guess is the likeliest token of a masked position, -1 if it is unknown.
 */
export class Lane {
  kept = null; // see tokens

  constructor(header, decoder) {
    this.n = header.length;
    const n = this.n;
    const t = header.steps;
    Object.assign(this, { decoder, id: decoder.id, name: decoder.name, count: 0, records: [], tops: [] });
    this.timing = null; // the same object for all lanes that were timed together
    this.source = null; // the place of its exact records, by its id: {document} or, on the server, {run}
    this.state = new Uint8Array(n * t); // the state of every position after every step, see states.js
    this.held = new Uint8Array(n * t); // 1 where a position is locked after a step
    this.kl = new Float32Array(n * t).fill(NaN);
    this.confidence = new Float32Array(n * t).fill(NaN);
    this.guesses = new Int32Array(n * t).fill(-1);
    // The changes of every position, the latest last: [step, token (-1: masked), step in which it was unmasked].
    this.changes = Array.from(opening(header), (token) => [[-1, token, -1]]);
    this.masked = Uint8Array.from(opening(header), (token) => (token < 0 ? 1 : 0));
    this.masks = this.masked.reduce((sum, masked) => sum + masked, 0); // the number of masks at the start
    this.locked = new Uint8Array(n);
    this.opening = this.masked.map((masked) => (masked ? MASKED : ACTIVE));
    this.steps = []; // see append
  }

  append(record) {
    const t = this.count;
    const { n } = this;
    const at = t * n;
    if (record.step !== t || at + n > this.state.length)
      throw damaged("its records are not one per step and lane, in order");
    const unpacked = unpack(record, n);
    const { masked, back, written, unlocked, unmasked, filled, locked, rows, kl, confidence, guess, top } = unpacked;
    const { shares } = unpacked;
    for (const p of masked) this.#change(p, t, -1);
    for (const [p, token] of written) this.#change(p, t, token);
    for (const p of unlocked) this.locked[p] = 0;
    const masks = rows.filter((p) => this.masked[p]);
    for (const [i, token] of guessesOf(guess, masks.length).entries()) this.guesses[at + masks[i]] = token;
    for (const [p, token] of [...unmasked, ...filled]) this.#change(p, t, token);
    for (const p of locked) this.locked[p] = 1;
    this.held.set(this.locked, at);
    this.#states(at, rows);
    rows.forEach((p, i) => {
      this.kl[at + p] = kl[i];
      this.confidence[at + p] = confidence[i];
    });
    if (top) this.tops[t] = top;
    const changes = { masked, back, unlocked, locked, written: positionsOf(written), unmasked: positionsOf(unmasked) };
    const states = this.state.subarray(at, at + n);
    const lockedCount = states.reduce((sum, state) => sum + (state === LOCKED), 0);
    const counts = { computed: rows.length, lockedCount, shares };
    this.steps.push({ ...changes, ...counts, ...this.#totals(record, t, rows.length), ...band(kl) });
    this.records.push(record); // unchanged, for an export at the stream's precision
    this.count++;
    if (record.commit_error) this.#scored(t);
  }

  /** Adds the measurements after the run, by step: commit errors, positions of changed choices, and regrets. */
  score(errors, changed, regret = []) {
    for (let t = 0; t < this.count; t++) {
      this.records[t] = { ...this.records[t], commit_error: errors[t], changed: changed[t], regret: regret[t] ?? null };
      this.#scored(t);
    }
  }

  /** Adds a step's commit errors to those of earlier steps; also its regret, if all steps have one. */
  #scored(t) {
    const { unmasked, commit_error: errors, changed = [], regret = null } = this.records[t];
    if (errors.length !== unmasked.length) throw damaged("a step has another number of commit errors than commits");
    const before = t ? this.steps[t - 1].damage : { commits: 0, nats: 0, changed: 0, regret: 0 };
    if (!before) return;
    const commits = before.commits + errors.length;
    const nats = before.nats + errors.reduce((sum, one) => sum + (one ?? 0), 0);
    const mean = nats / Math.max(1, commits); // the commit error
    const lost = regret === null || before.regret === null ? null : before.regret + regret;
    const more = before.changed + within(changed, this.n).length;
    this.steps[t].damage = { commits, nats, mean, changed: more, regret: lost };
  }

  #change(p, t, token) {
    const [, before, since] = this.changes[p].at(-1);
    this.changes[p].push([t, token, before < 0 ? t : since]);
    this.masked[p] = token < 0 ? 1 : 0;
  }

  #states(at, rows) {
    const { n, state, masked, locked } = this;
    for (let p = 0; p < n; p++) {
      if (masked[p]) state[at + p] = WAITING;
      else state[at + p] = locked[p] ? LOCKED : RESTING;
    }
    for (const p of rows) state[at + p] = masked[p] ? MASKED : ACTIVE; // ACTIVE even if it locks in this step
  }

  #totals({ seconds, flops, baseline_flops: baselineFlops, taken_back: back = [], spared = 0 }, t, rows) {
    const none = { totalSeconds: 0, totalFlops: 0, totalBaseline: 0, totalRows: 0, takenBack: 0 };
    const before = t ? this.steps[t - 1] : none;
    const totals = { totalSeconds: before.totalSeconds + seconds, totalFlops: before.totalFlops + flops };
    totals.totalBaseline = before.totalBaseline + baselineFlops;
    totals.totalRows = before.totalRows + rows;
    return { seconds, flops, baselineFlops, ...totals, takenBack: before.takenBack + back.length, spared };
  }

  /** The largest step-wise KL at which a position locks, NaN for a rule that does not lock by KL. */
  get epsilon() {
    const rule = this.decoder.compute.lock ?? this.decoder.compute;
    return rule.epsilon === "inf" ? Infinity : (rule.epsilon ?? NaN);
  }

  /**
   * The greatest number of steps of this lane. Policies that take tokens back have more steps than the setting
   * `steps`.
   */
  get most() {
    const { settings, unmask } = this.decoder;
    const steps = settings.steps ?? this.masks;
    if (unmask.kind === "remask") return 2 * steps;
    return unmask.kind === "correct" ? (2 + unmask.times) * steps : steps;
  }

  /**
   * Whether step t is the last step of the lane. It is if it has the greatest possible number, or if no position is
   * masked after it and the policy takes no more tokens back.
   */
  endsAt(t) {
    if (t + 1 >= this.most) return true;
    const { kind } = this.decoder.unmask;
    const full = t + 1 >= this.count && t >= 0 && kind !== "remask" && !this.masked.includes(1);
    return full && (kind !== "correct" || !this.steps[t].unmasked.length);
  }

  /** A step clamped to the steps that exist; -1 before the first record. */
  clamp(t) {
    return Math.max(-1, Math.min(t, this.count - 1));
  }
  /** States of all positions after step t (t = -1: before the first step). */
  row(t) {
    const at = this.clamp(t) * this.n;
    return at < 0 ? this.opening : this.state.subarray(at, at + this.n);
  }
  at(t) {
    return this.steps[this.clamp(t)];
  }
  /** The last step that had ended after `seconds` of this lane's clock, -1 before the first. */
  doneBy(seconds) {
    return this.steps.findLastIndex(({ totalSeconds }) => totalSeconds <= seconds);
  }
  secondsOf(t) {
    return this.steps.slice(0, this.clamp(t) + 1).map(({ seconds }) => seconds);
  }
  /** The seconds of computation of all steps so far. */
  get seconds() {
    return this.steps.at(-1)?.totalSeconds ?? 0;
  }

  /** The token at a position after step t, -1 if the position is masked. */
  token(position, t) {
    return standing(this, position, t)[1];
  }
  /** The step that wrote the token at a position after step t: -1 for the prompt, NaN if the position is masked. */
  unmaskStep(position, t) {
    const [, token, since] = standing(this, position, t);
    return token < 0 ? NaN : since;
  }
  /** The tokens that the policy took back at a position up to step t: [[step, token], ...]. */
  takenBack(position, t) {
    const list = this.changes[position];
    const taken = ([step, token]) => token < 0 && step >= 0 && step <= t && this.steps[step].back.includes(position);
    return list.flatMap((change, i) => (taken(change) ? [[change[0], list[i - 1][1]]] : []));
  }
  /** The tokens of all positions after step t. Do not change them: the lane keeps the array for the next call. */
  tokens(t) {
    const step = this.clamp(t);
    if (this.kept?.step !== step)
      this.kept = { step, tokens: Int32Array.from({ length: this.n }, (_, p) => this.token(p, step)) };
    return this.kept.tokens;
  }

  /** The shares of the words in the list of a position, last computed at or before step t; null before that. */
  shares(position, t) {
    for (let s = this.clamp(t); s >= 0; s--) {
      const entry = this.steps[s].shares.find(([p]) => p === position);
      if (entry) return entry.slice(1);
    }
    return null;
  }

  /** The last step up to t that computed a position, -1 if there is none. */
  lastComputed(position, t) {
    let s = this.clamp(t);
    while (s >= 0 && Number.isNaN(this.confidence[s * this.n + position])) s--;
    return s;
  }
  /** Whether a position is locked after step t. Step t itself may have computed it. */
  isLocked(position, t) {
    const s = this.clamp(t);
    return s >= 0 && this.held[s * this.n + position] === 1;
  }
  /** The step in which the lock of a position began, -1 if the position is not locked after step t. */
  lockStep(position, t) {
    if (!this.isLocked(position, t)) return -1;
    return this.steps.findLastIndex(({ locked }, s) => s <= t && locked.includes(position));
  }
  /** [[id, p], ...]: the likely tokens of a position, last listed at or before step t; null if the trace lists none. */
  top(position, t) {
    if (!this.tops.length) return null;
    for (let s = this.clamp(t); s >= 0; s--) {
      const i = this.tops[s]?.index.get(position);
      if (i === undefined) continue;
      return likely(this.tops[s], i);
    }
    return [];
  }
}

/** A new lane that begins with a copy of the first steps of the lane `from`. */
export function begun(header, decoder, from, steps) {
  const lane = new Lane(header, decoder);
  for (const { top: _, ...record } of from?.records.slice(0, steps) ?? []) lane.append({ ...record, lane: lane.id });
  return lane;
}
