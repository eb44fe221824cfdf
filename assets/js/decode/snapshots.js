// Snapshots of a run: another run with the same past starts from one of them, not from its first step. It mirrors
// surelock/decoding/snapshots.py.

import { find, flags, NONE, put } from "./arrays.js";

const EVERY = 7; // steps between two snapshots: to any step, a run computes at most eight steps again
const MOST_BYTES = 64 * 2 ** 20;

/** The bytes that the snapshots of all runs of a tab may take. The oldest run's make room for those of a new one. */
export class Allowance {
  #owners = [];

  constructor(most = MOST_BYTES) {
    this.most = most;
  }

  get used() {
    const parts = new Set(this.#owners.flatMap(({ copied }) => copied));
    return [...parts].reduce((sum, { bytes }) => sum + bytes, 0);
  }

  join(owner) {
    this.#owners.push(owner);
  }

  /** Whether so many bytes more fit: snapshots that began before those of `owner` go for them. */
  fits(bytes, owner) {
    const oldest = () => this.#owners.find(({ race }) => race !== owner.race);
    while (this.used + bytes > this.most && oldest()) {
      const { race } = oldest();
      for (const snapshots of this.#owners) if (snapshots.race === race) snapshots.clear();
      this.#owners = this.#owners.filter((snapshots) => snapshots.race !== race);
    }
    return this.used + bytes <= this.most;
  }
}

/** Whether two decoders, in their plain forms, differ in nothing but their events. */
function alike(one, other) {
  const rest = ({ compute, unmask, settings }) => JSON.stringify([compute, unmask, settings]);
  return rest(one) === rest(other);
}

/** The first step before which an event of one decoder is none of the other's. */
function parting(one, other) {
  const textsOf = ({ events = [] }) => events.map((event) => JSON.stringify(event));
  const stepsMissing = (texts, others) =>
    texts.filter((text) => !others.includes(text)).map((text) => JSON.parse(text).step);
  const texts = textsOf(one);
  const others = textsOf(other);
  return Math.min(Number.POSITIVE_INFINITY, ...stepsMissing(texts, others), ...stepsMissing(others, texts));
}

/** The snapshots of one lane, of a run that is observed. */
export class Snapshots {
  #taken = []; // {step, run, beside, again: the plan of the step before, if it computed every row, rows}
  #changed = null;
  #whole = false; // whether they reach back to a step that computed every row

  /** decoder: of the run, in its plain form. race: the same for the lanes that are decoded together. */
  constructor(decoder, allowance, race) {
    Object.assign(this, { decoder, allowance, race });
    allowance.join(this);
  }

  /** The rows that are copied. */
  get copied() {
    return this.#taken.flatMap(({ rows }) => rows ?? []);
  }

  clear() {
    this.#taken = [];
    this.#whole = false;
  }

  /**
   * Looks at a run between two steps, and takes a snapshot of it if one is due.
   * made(run): another run of the decoder that goes on from this one. beside: what to keep with it.
   */
  add({ run, plan, engine, memory, made, beside }) {
    const step = run.nextStep;
    const total = run.canvas.total;
    this.#changed ??= new Uint8Array(total);
    if (plan.slots.length === total && !plan.probed.includes(1)) {
      this.#changed.fill(0);
      this.#whole = true;
      this.#taken.push({ step, run: made(run), beside, again: dense(plan) });
      return;
    }
    put(
      this.#changed,
      plan.slots.filter((_, row) => !plan.probed[row]),
      1,
    );
    if (!this.#whole || step - this.#taken.at(-1).step < EVERY) return;
    const rows = engine.copyRows(memory, find(this.#changed));
    this.#whole = this.allowance.fits(rows.bytes, this);
    if (!this.#whole) return;
    this.#taken.push({ step, run: made(run), beside, rows });
    this.#changed.fill(0);
  }

  /** The step from which a run of that decoder can go on: at most `most`, 0 if there is none. */
  before(decoder, most) {
    if (!alike(decoder, this.decoder)) return 0;
    const first = Math.min(most, parting(decoder, this.decoder));
    return this.#taken.findLast(({ step }) => step <= first)?.step ?? 0;
  }

  /** Sets a run that has not begun, and its memory, to that step, see `before`. Gives what was kept beside. */
  async begin(step, run, engine, memory) {
    const number = this.#taken.findIndex((snapshot) => snapshot.step === step);
    const whole = this.#taken.findLastIndex(({ again }, i) => again && i <= number);
    const chain = this.#taken.slice(whole, number + 1);
    for (const { again, rows } of chain) {
      if (again) await engine.read(memory, again);
      else engine.putRows(memory, rows);
    }
    run.goOnFrom(chain.at(-1).run);
    return chain.at(-1).beside;
  }

  /** Those that a run of a decoder has at once when it begins at that step. */
  until(step, decoder, race) {
    const snapshots = new Snapshots(decoder, this.allowance, race);
    snapshots.#taken = this.#taken.filter((snapshot) => snapshot.step <= step);
    snapshots.#whole = true;
    return snapshots;
  }
}

/** The plan without candidates and comparisons: every row is computed and its posterior kept. */
function dense(plan) {
  const none = flags(plan.slots.length, () => false);
  const nothing = {
    chooses: none,
    watches: none,
    compares: none,
    scores: null,
    measures: [],
    quota: null,
    draws: null,
  };
  const read = Int32Array.from(plan.slots.keys());
  return { ...plan, ...nothing, observe: true, read, barred: [NONE, NONE], outdated: NONE, top_k: 1 };
}
