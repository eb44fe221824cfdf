// A run decides: which rows a step computes, what is committed, what locks. It knows no network, no device, no clock.
//
//   const run = new Run(shape, prompts, decoder);
//   for (let plan = run.plan(); plan; plan = run.plan()) step = run.take(await engine.read(memory, plan));
//
// One turn of this loop is one turn of Algorithm 1's. It mirrors surelock/decoding/run.py and, on equal readings,
// decides the same.

import { either, find, flags, join, NONE, place, rowsOf, take, union } from "./arrays.js";
import { apply, inOrder, refused } from "./events.js";
import { rowFlops } from "./flops.js";
import { repeatingTokens } from "./ngrams.js";
import { draws } from "./noise.js";
import { Canvas, Schedule, State } from "./state.js";
import { Plan } from "./step.js";

/** The network put out NaN or infinity; the message names the step. */
export class NonFiniteLogits extends Error {}

const UNDISTURBED = { written: NONE, masked: NONE, locked: NONE, unlocked: NONE };

/** One run of a batch of prompts, lists of token ids. shape: {network, mask_id, pad_id, ends}. decoder: see
 * `readDecoder`. observe: every row is read, and has a KL. top_k: how many likely tokens of each row a step tells; it
 * observes. Throws a RangeError, one sentence, for an event that the run cannot have. */
export class Run {
  #ends;
  #late;
  #banned;
  #rowFlops;
  #next = 0;
  #forgets = [];
  #made = null;

  constructor(shape, prompts, decoder, { observe = false, top_k = 0 } = {}) {
    const { settings, unmask: policy } = decoder;
    Object.assign(this, { shape, settings, compute: decoder.compute, policy });
    this.canvas = new Canvas(prompts, settings, shape.mask_id, shape.pad_id);
    this.events = inOrder(decoder.events, this.canvas, settings.totalSteps, shape.network.vocab_size, policy);
    this.schedule = new Schedule(this.canvas, settings, policy.early);
    this.state = new State(this.canvas, this.schedule);
    [this.observe, this.top_k] = [observe || top_k > 0, top_k];
    this.layout = { lengths: Array.from(this.canvas.lengths), passes: settings.cfg_scale > 0 ? 2 : 1 };
    this.#ends = shape.ends;
    this.#late = settings.suppress_eos_confidence ? shape.ends : [];
    this.#banned = [shape.mask_id, ...(settings.suppress_eos ? shape.ends.slice(0, 1) : [])];
    // FLOPs of a row of each sequence, and of one that is only probed
    this.#rowFlops = [false, true].map((probed) =>
      this.layout.lengths.map((n) => this.layout.passes * rowFlops(shape.network, n, { probed })),
    );
  }

  /** What the next step computes (lines 5-8), made once and the same until it is taken; null when the run is over.
   * Throws a RangeError for an event that does not fit what the run has become. */
  plan() {
    if (this.#made) return this.#made.plan;
    if (this.#next === this.settings.totalSteps) return null;
    if (!this.schedule.running.includes(1)) {
      const late = this.events.find((event) => event.step >= this.#next);
      if (late) throw refused(late, `there is no such step, the run ended before step ${this.#next}`);
      return null;
    }
    this.state.step = this.#next;
    this.state.alive = take(this.schedule.running, this.canvas.sequence);
    const due = this.events.filter((event) => event.step === this.#next);
    const done = due.length ? this.#intervene(due) : UNDISTURBED;
    this.#made = { plan: this.#plan(), done };
    return this.#made.plan;
  }

  /** The step that comes of what an engine found (lines 16-24). */
  take(reading) {
    if (!this.#made) throw new RangeError("there is no plan to take a reading of: call plan() first");
    const { plan, done } = this.#made;
    const { state } = this;
    if (!reading.finite) throw new NonFiniteLogits(`the network put out NaN or infinite logits in step ${state.step}`);
    plan.slots.forEach((slot, row) => {
      if (!plan.probed[row] && !state.masked[slot]) state.visible[slot] += 1;
    });
    const unmasked = this.#unmask(plan, reading); // line 16: from the posteriors alone
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
    this.#made = null;
    this.#next += 1;
    return this.#report(plan, reading, unmasked, changes, done);
  }

  /** Apply a step's events: they come before all else. */
  #intervene(due) {
    const { state } = this;
    const before = state.locked.slice();
    for (const event of due) {
      if (event.compute) {
        this.compute.end();
        this.compute = event.compute;
      } else apply(event, state);
    }
    const slotsOf = (kind) => {
      const own = due.filter((event) => event.kind === kind);
      return Int32Array.from(own, ({ sequence, position }) => this.canvas.slot(sequence, position));
    };
    const [written, masked, unlocked] = ["write", "mask", "unlock"].map(slotsOf);
    this.#forgets.push(join([written, masked, unlocked]).filter((slot) => before[slot])); // also where it locks again
    return {
      written,
      masked,
      locked: find(state.locked.map((flag, slot) => flag && !before[slot])),
      unlocked: find(before.map((flag, slot) => flag && !state.locked[slot])),
    };
  }

  /** The rows that the rule chooses, the masks that an ending block must commit, and who may be committed. */
  #plan() {
    const { canvas, state, schedule, settings, policy } = this;
    const ending = this.#openBlocks();
    const active = state.active();
    let slots = this.compute.rows(state, active);
    if (state.step === 0) slots = active; // nothing is cached yet; the rule was asked because it may keep account
    slots = union(slots, ending);
    const chooses = policy.chooses(state, slots);
    const choosers = slots.filter((_, row) => chooses[row]);
    const scored = policy.scores === "noise";
    const drawn = settings.temperature > 0 || scored;
    const tokens = take(canvas.tokens, slots);
    const { observe } = this;
    const probed = take(state.locked, slots);
    const watches = this.#asked("watches", slots);
    const unwatched = observe ? NONE : slots.filter((_, row) => !watches[row] && !probed[row]);
    const outdated = join([...this.#forgets, unwatched]);
    this.#forgets = [];
    return new Plan({
      step: state.step,
      slots,
      counts: canvas.counts(slots),
      tokens,
      blind:
        settings.cfg_scale > 0 ? tokens.map((id, row) => (canvas.is_prompt[slots[row]] ? canvas.mask_id : id)) : null,
      positions: take(canvas.position, slots),
      probed,
      watches,
      compares: this.#asked("compares", slots),
      chooses,
      observe,
      read: find(flags(slots.length, (row) => observe || watches[row] || chooses[row])),
      outdated,
      scores: policy.scores,
      quotas: drawn && policy.by_posterior && !this.#late.length ? this.#quotas() : null,
      banned: this.#banned,
      repeats: settings.no_repeat_ngram_size ? this.#repeats(choosers) : [NONE, NONE],
      temperature: settings.temperature,
      draws: drawn ? draws(canvas, schedule, settings, state.step, choosers, scored) : null,
      cfg_scale: settings.cfg_scale,
      top_k: this.top_k,
    });
  }

  /** How many candidates each sequence commits. */
  #quotas() {
    const { schedule, canvas } = this;
    return Array.from(schedule.closing, (closing, b) => (closing ? canvas.total : schedule.quota(b)));
  }

  /** Says which masks the step may commit, and returns those that it must. */
  #openBlocks() {
    const { canvas, state, schedule } = this;
    state.open.fill(0);
    const ending = [];
    schedule.running.forEach((running, b) => {
      if (!running) return;
      const [start, stop] = schedule.open(b);
      state.open.set(canvas.masked.subarray(start, stop), start);
      if (schedule.closing[b]) ending.push(find(canvas.masked.subarray(start, stop)).map((at) => start + at));
    });
    return join(ending);
  }

  /** Which rows the rule or the policy watches, or compares. */
  #asked(what, slots) {
    if (this.events.length && !this.observe) return new Uint8Array(slots.length).fill(1); // one may open any row
    return either(this.compute[what](this.state, slots), this.policy[what](this.state, slots));
  }

  /** What `no_repeat_ngram_size` forbids: numbers among the choosers, ascending, and tokens. */
  #repeats(choosers) {
    const { canvas, settings, shape } = this;
    const pairs = [];
    for (let b = 0; b < canvas.batch && choosers.length; b++) {
      const [start, stop] = canvas.slotsOf(b);
      const [tokens, masked] = [canvas.tokens, canvas.masked].map((values) => values.subarray(start, stop));
      for (const [position, token] of repeatingTokens(tokens, masked, settings.no_repeat_ngram_size)) {
        const row = place(choosers, start + position);
        if (choosers[row] === start + position && !this.#ends.includes(token)) pairs.push([row, token]);
      }
    }
    // Where nothing else is left to choose (a tiny vocabulary), repeating is better than committing a mask.
    const counts = new Int32Array(choosers.length);
    for (const [row] of pairs) counts[row] += 1;
    const kept = pairs.filter(([row]) => counts[row] < shape.network.vocab_size - this.#banned.length);
    return [0, 1].map((side) => Int32Array.from(kept, (pair) => pair[side]));
  }

  /** Commit what the policy takes, and move every sequence's schedule on. Returns the slots committed. */
  #unmask(plan, reading) {
    const { state, schedule, canvas, policy } = this;
    policy.prepare(state, reading);
    const choosers = plan.slots.filter((_, row) => plan.chooses[row]);
    const scores = plan.draws?.scored ? plan.draws.scores() : reading.score;
    const late = flags(choosers.length, (i) => this.#late.includes(reading.tokens[i]));
    const unmasked = canvas.split(choosers).map((part, b) => {
      if (!schedule.running[b]) return NONE;
      const own = { slots: choosers, tokens: reading.tokens, score: scores, late };
      for (const name of Object.keys(own)) own[name] = own[name].subarray(...part);
      const [slots, tokens] = policy.commits({ state, b, quota: schedule.quota(b), ...own });
      canvas.commit(slots, tokens);
      schedule.advance(b, slots.length);
      return slots;
    });
    return join(unmasked);
  }

  #report(plan, reading, unmasked, changes, done) {
    const { canvas, state, top_k: k } = this;
    const rows = find(plan.probed.map((probed) => !probed));
    const [slots, probed] = [take(plan.slots, rows), plan.slots.filter((_, row) => plan.probed[row])];
    const [computedFlops, probedFlops] = this.#rowFlops;
    const [computedRows, probedRows] = [canvas.counts(slots), canvas.counts(probed)];
    const likely = (values, fill) => (k ? canvas.grid(rowsOf(values, rows, k), fill, slots, k) : null);
    return {
      index: state.step,
      tokens: canvas.grid(canvas.tokens, canvas.pad_id),
      open: canvas.grid(state.open, 0),
      scores: this.policy.scores === "noise" ? null : this.policy.scores,
      masked: canvas.grid(canvas.masked, 0),
      locked: canvas.grid(state.locked, 0),
      newly_unmasked: canvas.flags(unmasked),
      newly_masked: canvas.flags(done.masked),
      written: canvas.flags(done.written),
      newly_locked: canvas.flags(done.locked, changes.locked),
      newly_unlocked: canvas.flags(done.unlocked, changes.unlocked),
      computed: canvas.flags(slots),
      probed: canvas.flags(probed),
      kl: canvas.grid(take(reading.kl, rows), Number.NaN, slots),
      confidence: canvas.grid(take(reading.confidence, rows), Number.NaN, slots),
      top_ids: likely(reading.top_ids, -1),
      top_probs: likely(reading.top_probs, Number.NaN),
      flops: Float64Array.from(computedFlops, (f, b) => f * computedRows[b] + probedFlops[b] * probedRows[b]),
      baseline_flops: Float64Array.from(computedFlops, (f, b) =>
        state.alive[canvas.starts[b]] ? f * canvas.lengths[b] : 0,
      ),
      seconds: reading.seconds,
    };
  }
}
