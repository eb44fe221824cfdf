// A run makes the decisions of decoding: which rows a step computes, which positions are committed, and which lock. It
// knows no network, no device and no clock.
//
//   const run = new Run(shape, prompt, decoder);
//   for (let plan = run.plan(); plan; plan = run.plan()) step = run.take(await engine.read(memory, plan));
//
// One pass through this loop is one step of Algorithm 1. For equal readings the decisions are those of
// surelock/decoding/algorithm.py.

import { either, find, flags, join, NONE, place, put, rowsOf, take, union } from "./arrays.js";
import { apply, inOrder, refused } from "./events.js";
import { repeatingTokens } from "./ngrams.js";
import { draws } from "./noise.js";
import { Canvas, Schedule, State } from "./state.js";
import { stop } from "./stopping.js";
import { listedRows, putWords, slotLists } from "./word_lists.js";

/** The network returned NaN or infinity. The message names the step. */
export class NonFiniteLogits extends Error {}

const UNDISTURBED = { written: NONE, masked: NONE, locked: NONE, unlocked: NONE, taken_back: NONE };

/**
 * One run of a prompt.
 * prompt: token ids, mask tokens among them. shape: {network, mask_id, ends}. decoder: see `readDecoder`.
 * observe: whether every row is read and has a KL. top_k: the number of likely tokens of a row in a step; it implies
 *   observe. lists: the word lists of blanks, [{at, words}, ...].
 * Throws a RangeError, one sentence, for an event that the run cannot have, and for a prompt and settings that do not
 * fit.
 */
export class Run {
  #ends;
  #late;
  #banned;
  #rowFlops;
  #next = 0;
  #forgets = [];
  #planned = null;

  constructor(shape, prompt, decoder, { observe = false, top_k = 0, lists = [] } = {}) {
    const { settings, unmask: policy } = decoder;
    Object.assign(this, { shape, settings, compute: decoder.compute, policy });
    this.canvas = new Canvas(prompt, settings, shape.mask_id);
    this.schedule = new Schedule(this.canvas, settings, policy);
    this.events = inOrder(decoder.events, this.canvas, this.schedule.steps, shape.network.vocab_size);
    this.#checkVocabulary();
    this.state = new State(this.canvas, this.schedule);
    this.lists = slotLists(lists, prompt, shape);
    [this.observe, this.top_k] = [observe || top_k > 0, top_k];
    this.layout = { length: this.canvas.total, passes: settings.cfg_scale > 0 ? 2 : 1 };
    this.#ends = shape.ends;
    this.#late = settings.suppress_eos_confidence ? shape.ends : [];
    this.#banned = [shape.mask_id, ...(settings.suppress_eos ? shape.ends.slice(0, 1) : [])];
    const { length, passes } = this.layout;
    const flopsOf = (probed) => passes * rowFlops(shape.network, length, probed);
    this.#rowFlops = [false, true].map(flopsOf); // the FLOPs of a computed row, and of a probed row
  }

  #checkVocabulary() {
    const { network, mask_id, ends } = this.shape;
    const words = network.vocab_size - new Set([mask_id, ...ends]).size;
    if (!this.settings.no_repeat_ngram_size || words >= this.canvas.total) return;
    const why = `of ${words} words some must come twice in ${this.canvas.total} positions`;
    throw new RangeError(`no_repeat_ngram_size must be 0 for this model: ${why}`);
  }

  get nextStep() {
    return this.#next;
  }

  /**
   * Takes over the state of another run between two steps. Both runs must have the same prompt and the same events so
   * far.
   * Returns this run.
   */
  goOnFrom(other) {
    for (const part of ["canvas", "schedule", "state"]) this[part].goOnFrom(other[part]);
    this.compute = other.compute; // rules have no state of their own, except typed rules
    this.#forgets = [...other.#forgets];
    this.#next = other.#next;
    return this;
  }

  /**
   * The plan of the next step (lines 5-8), the same until its reading is taken; null at the end of the run.
   * Throws a RangeError for an event that does not fit the present state.
   */
  plan() {
    if (this.#planned) return this.#planned.plan;
    if (!this.schedule.running) {
      const late = this.events.find((event) => event.step >= this.#next);
      if (late) throw refused(late, `there is no such step, the run ended before step ${this.#next}`);
      return null;
    }
    this.state.step = this.#next;
    const due = this.events.filter((event) => event.step === this.#next);
    const done = due.length ? this.#intervene(due) : UNDISTURBED;
    const taken_back = this.#takeBack();
    this.#planned = { plan: this.#plan(), done: { ...done, taken_back } };
    return this.#planned.plan;
  }

  /** Takes an engine's reading of the plan, and returns the step (lines 16-24). */
  take(reading) {
    if (!this.#planned) throw new RangeError("there is no plan to take a reading of: call plan() first");
    const { plan, done } = this.#planned;
    const { state } = this;
    if (!reading.finite) throw new NonFiniteLogits(`the network put out NaN or infinite logits in step ${state.step}`);
    plan.slots.forEach((slot, row) => {
      if (!plan.probed[row] && !state.masked[slot]) state.visible[slot] += 1;
    });
    const shares = putWords(this, plan, reading);
    const unmasked = this.#unmask(plan, reading); // line 16: depends on the posteriors alone
    plan.slots.forEach((slot, row) => {
      if (plan.probed[row]) {
        state.probed_at[slot] = state.step;
        return;
      }
      state.computed_at[slot] = state.step;
      [state.kl[slot], state.confidence[slot]] = [reading.kl[row], reading.confidence[row]];
    });
    const changes = this.compute.after(state, reading); // lines 17-24: the rule sees the canvas after the commit
    state.lock(changes.locked);
    if (changes.unlocked.length) {
      state.unlock(changes.unlocked);
      this.#forgets.push(changes.unlocked);
    }
    const ended = this.settings.stop_at_end ? stop(this) : null;
    this.#planned = null;
    this.#next += 1;
    return this.#report(plan, reading, unmasked, changes, { ...done, ended, shares });
  }

  #intervene(due) {
    const { state } = this;
    const before = state.locked.slice();
    for (const event of due) {
      if (event.compute) {
        this.compute.end();
        this.compute = event.compute;
      } else apply(event, state);
    }
    const slotsOf = (kind) =>
      Int32Array.from(
        due.filter((event) => event.kind === kind),
        ({ position }) => position,
      );
    const [written, masked, unlocked] = ["write", "mask", "unlock"].map(slotsOf);
    // Even if the slot locks again.
    this.#forgets.push(join([written, masked, unlocked]).filter((slot) => before[slot]));
    return {
      written,
      masked,
      locked: find(state.locked.map((flag, slot) => flag && !before[slot])),
      unlocked: find(before.map((flag, slot) => flag && !state.locked[slot])),
    };
  }

  /** Masks the slots again that the policy takes back, before the step's rows are chosen. */
  #takeBack() {
    const { state } = this;
    const slots = this.policy.takesBack(state);
    state.mask(slots);
    put(state.kl, slots, Number.POSITIVE_INFINITY);
    put(state.confidence, slots, Number.NaN);
    this.#forgets.push(slots);
    return slots;
  }

  /** Makes the plan: the rows that the rule chooses, the masks that an ending block must commit, and the candidates. */
  #plan() {
    const { canvas, state, schedule, settings, policy } = this;
    const ending = this.#openBlock();
    const active = state.active();
    let slots = this.compute.rows(state, active);
    if (state.step === 0) slots = active; // nothing is cached yet; the rule was called since it may count rows
    slots = union(slots, ending);
    const chooses = policy.chooses(state, slots);
    const choosers = slots.filter((_, row) => chooses[row]);
    const scored = policy.scores === "noise";
    const drawn = settings.temperature > 0 || scored;
    const committed = schedule.closing ? canvas.total : schedule.quota;
    const tokens = take(canvas.tokens, slots);
    const { observe } = this;
    const probed = take(state.locked, slots);
    const watches = this.#followed("watches", slots);
    const unwatched = observe ? NONE : slots.filter((_, row) => !watches[row] && !probed[row]);
    const outdated = join([...this.#forgets, unwatched]);
    this.#forgets = [];
    return {
      step: state.step,
      slots,
      tokens,
      blind: settings.cfg_scale > 0 ? tokens.map((id, row) => (canvas.given[slots[row]] ? canvas.mask_id : id)) : null,
      probed,
      watches,
      compares: this.#followed("compares", slots),
      chooses,
      observe,
      read: find(flags(slots.length, (row) => observe || watches[row] || chooses[row])),
      outdated,
      scores: policy.scores,
      measures: [...new Set([...policy.measures, ...this.compute.measures])].sort(),
      quota: drawn && policy.by_posterior && !this.#late.length ? committed : null,
      banned: this.#banned,
      barred: this.#barred(choosers),
      temperature: settings.temperature,
      draws: drawn ? draws(canvas, schedule, settings, state.step, choosers, scored) : null,
      cfg_scale: settings.cfg_scale,
      top_k: this.top_k,
      listed: listedRows(this, slots, chooses),
    };
  }

  /** Opens the slots that the step may commit, and returns the masked slots that it must commit. */
  #openBlock() {
    const { canvas, state, schedule } = this;
    const [start, stop] = schedule.open;
    state.open.fill(0);
    state.open.set(canvas.masked.subarray(start, stop), start);
    return schedule.closing ? find(state.open) : NONE;
  }

  /** Flags of the rows that the rule or the policy follows. what: "watches" or "compares". */
  #followed(what, slots) {
    if (this.events.length && !this.observe) return new Uint8Array(slots.length).fill(1); // an event may need any row
    return either(this.compute[what](this.state, slots), this.policy.watches(this.state, slots));
  }

  /**
   * The tokens that single candidates must not become: [numbers of the candidates, ascending; tokens].
   * They are ends of the text before words of the prompt, and tokens that would repeat an n-gram.
   */
  #barred(choosers) {
    const { canvas, settings } = this;
    const inner = place(choosers, canvas.given_until);
    const pairs = Array.from({ length: inner }, (_, row) => this.#ends.map((token) => [row, token])).flat();
    if (settings.no_repeat_ngram_size) {
      for (const [position, token] of repeatingTokens(canvas.tokens, canvas.masked, settings.no_repeat_ngram_size)) {
        const row = place(choosers, position);
        if (choosers[row] === position && !this.#ends.includes(token)) pairs.push([row, token]);
      }
      pairs.sort(([p, t], [q, u]) => p - q || t - u);
    }
    return [0, 1].map((side) => Int32Array.from(pairs, (pair) => pair[side]));
  }

  /** Commits the tokens that the policy chooses, and advances the schedule. Returns the committed slots. */
  #unmask(plan, reading) {
    const { state, schedule, canvas, policy } = this;
    policy.prepare(state, reading);
    const choosers = plan.slots.filter((_, row) => plan.chooses[row]);
    const score = plan.draws?.scored ? plan.draws.scores() : reading.score;
    state.measures = {};
    for (const [name, values] of Object.entries(reading.measures)) {
      state.measures[name] = new Float64Array(canvas.total).fill(Number.NaN);
      put(state.measures[name], choosers, values);
    }
    const late = flags(choosers.length, (i) => this.#late.includes(reading.tokens[i]));
    const candidates = { state, quota: schedule.quota, slots: choosers, tokens: reading.tokens, score, late };
    const [slots, tokens] = policy.commits(candidates);
    state.commit(
      slots,
      tokens,
      Float64Array.from(slots, (slot) => score[place(choosers, slot)]),
    );
    const committed = canvas.flags(slots);
    for (const values of Object.values(state.measures))
      for (const slot of choosers) if (!committed[slot]) values[slot] = Number.NaN;
    schedule.advance(slots.length);
    return slots;
  }

  #report(plan, reading, unmasked, changes, done) {
    const { canvas, state, top_k: k } = this;
    const rows = find(plan.probed.map((probed) => !probed));
    const slots = take(plan.slots, rows);
    const probed = plan.slots.filter((_, row) => plan.probed[row]);
    const [computedFlops, probedFlops] = this.#rowFlops;
    const likely = (values, fill) => (k ? canvas.grid(rowsOf(values, rows, k), fill, slots, k) : null);
    return {
      index: state.step,
      tokens: canvas.tokens.slice(),
      given: canvas.given.slice(),
      open: either(state.open, canvas.flags(unmasked)),
      scores: this.policy.scores === "noise" ? null : this.policy.scores,
      masked: canvas.masked.slice(),
      locked: state.locked.slice(),
      newly_unmasked: canvas.flags(unmasked),
      newly_masked: canvas.flags(done.masked),
      taken_back: canvas.flags(done.taken_back),
      written: canvas.flags(done.written),
      newly_locked: canvas.flags(done.locked, changes.locked),
      newly_unlocked: canvas.flags(done.unlocked, changes.unlocked),
      computed: canvas.flags(slots),
      probed: canvas.flags(probed),
      kl: canvas.grid(take(reading.kl, rows), Number.NaN, slots),
      confidence: canvas.grid(take(reading.confidence, rows), Number.NaN, slots),
      top_ids: likely(reading.top_ids, -1),
      top_probs: likely(reading.top_probs, Number.NaN),
      flops: computedFlops * slots.length + probedFlops * probed.length,
      baseline_flops: computedFlops * canvas.total * (1 + (done.ended?.steps ?? 0)),
      seconds: reading.seconds,
      ended: done.ended,
      shares: done.shares,
    };
  }
}

/** The FLOPs of one row in all layers. As in Sec. 2.4 of the paper, only matrix products of the blocks count. */
function rowFlops(config, length, probed) {
  const { d_model: d, n_heads, n_kv_heads, head_size, d_ff, n_layers } = config;
  const width = n_heads * head_size;
  const keysValues = probed ? 0 : 4 * d * n_kv_heads * head_size;
  return n_layers * (4 * length * width + 4 * d * width + keysValues + 6 * d * d_ff);
}
