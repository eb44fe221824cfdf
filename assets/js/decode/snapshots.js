// Snapshots of a run, from which another run with the same past begins, so that its first steps need not be computed.
// They mirror surelock/decoding/snapshots.py.

import { find, flags, NONE, put } from "./arrays.js";

const EVERY = 7; // steps between two snapshots; a run then computes at most eight steps again
const MOST_BYTES = 64 * 2 ** 20;

/** The bytes for the snapshots of all runs of a tab. Snapshots of the oldest run are dropped for those of a new run. */
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

  /** Whether `bytes` more bytes fit. Snapshots of races older than that of `owner` are dropped for them. */
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

/** Whether two decoders, in their plain forms, differ only in their events. */
function alike(one, other) {
  const rest = ({ compute, unmask, settings }) => JSON.stringify([compute, unmask, settings]);
  return rest(one) === rest(other);
}

/** The first step with an event that only one of two decoders has. */
function parting(one, other) {
  const textsOf = ({ events = [] }) => events.map((event) => JSON.stringify(event));
  const stepsMissing = (texts, others) =>
    texts.filter((text) => !others.includes(text)).map((text) => JSON.parse(text).step);
  const texts = textsOf(one);
  const others = textsOf(other);
  return Math.min(Number.POSITIVE_INFINITY, ...stepsMissing(texts, others), ...stepsMissing(others, texts));
}

/** The snapshots of one lane. Its run must be observed, see `Run`. */
export class Snapshots {
  #taken = []; // {step, run, beside, again, rows}; again: the plan of the step before if it computed every row
  #changed = null;
  #whole = false; // whether the snapshots reach back to a step that computed every row

  /** decoder: the run's decoder in its plain form. race: an object that all lanes of a race share. */
  constructor(decoder, allowance, race) {
    Object.assign(this, { decoder, allowance, race });
    allowance.join(this);
  }

  /** The copied rows of all snapshots. */
  get copied() {
    return this.#taken.flatMap(({ rows }) => rows ?? []);
  }

  clear() {
    this.#taken = [];
    this.#whole = false;
  }

  /**
   * Takes a snapshot of a run between two steps if one is due.
   * made(run): makes another run of the decoder that continues this run. beside: an object to keep with the snapshot.
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

  /** The step of the last snapshot from which a run of a decoder can continue, at most `most`; 0 if there is none. */
  before(decoder, most) {
    if (!alike(decoder, this.decoder)) return 0;
    const first = Math.min(most, parting(decoder, this.decoder));
    return this.#taken.findLast(({ step }) => step <= first)?.step ?? 0;
  }

  /** Sets a run that has not begun, and its memory, to the step of a snapshot. Returns the object kept with it. */
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

  /** The snapshots up to a step, for a run of another decoder that begins at that step. */
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
