// Decodes lanes in lockstep: every lane computes one step in turn, and every step is timed. It mirrors
// surelock/trace/race.py.

import { Run } from "./algorithm.js";
import { find } from "./arrays.js";
import { Shadow } from "./commit_error.js";
import { readDecoder } from "./decoder.js";
import { logSoftmax } from "./word_lists.js";

/** The number of likely tokens of a position that a trace lists. */
export const TOP_K = 5;

/**
 * Decodes one prompt with the lanes of a trace's header. Yields [{lane, step}, ...] with a step of every running lane.
 * The lanes take turns in going first, so that no lane always finds warmer caches.
 * After the steps it yields the commit errors of one lane after another, [{lane, commits}] (see `Shadow`), and [] while
 * they are being computed.
 * @param {OnnxEngine} engine
 * @param {object} shape
 * @param {number[]} prompt token ids
 * @param {object[]} lanes {id, ...} and a decoder's plain form
 * @param {object} [how]
 * @param {Object<string, Snapshots>} [how.snapshots] by lane, the snapshots to which its steps are added
 * @param {Object<string, {snapshots: Snapshots, step: number}>} [how.begins] by lane, the snapshot at which it begins
 * @param {object[]} [how.lists] the word lists of blanks, see `Run`
 */
export async function* race(engine, shape, prompt, lanes, { snapshots = {}, begins = {}, lists = [] } = {}) {
  const top_k = Math.min(TOP_K, shape.network.vocab_size);
  const runs = lanes.map((lane) => {
    const newRun = () => new Run(shape, prompt, readDecoder(lane), { top_k, lists });
    const run = newRun();
    const shadow = new Shadow(engine, shape, run.settings);
    return { lane: lane.id, run, newRun, shadow, memory: engine.memory(run.layout) };
  });
  for (const racer of runs.filter(({ lane }) => begins[lane])) {
    const { snapshots: kept, step } = begins[racer.lane];
    const shadow = await kept.begin(step, racer.run, engine, racer.memory);
    racer.shadow = shadow.copy();
  }
  try {
    for (let turn = 0; ; turn++) {
      const steps = new Map();
      for (let i = 0; i < runs.length; i++) {
        const { lane, run, newRun, shadow, memory } = runs[(turn + i) % runs.length];
        const [step, plan] = await turned(run, engine, memory);
        if (!step) continue;
        steps.set(lane, step);
        shadow.add(step);
        const resumed = (from) => newRun().goOnFrom(from);
        snapshots[lane]?.add({ run, plan, engine, memory, made: resumed, beside: shadow.copy() });
      }
      if (!steps.size) break;
      yield lanes.filter(({ id }) => steps.has(id)).map(({ id }) => ({ lane: id, step: steps.get(id) }));
    }
  } finally {
    for (const { run } of runs) run.compute.end();
  }
  for (const { lane, shadow } of runs) {
    const commits = [];
    for await (const commit of shadow.result()) {
      commits.push(commit);
      yield [];
    }
    yield [{ lane, commits }];
  }
}

/** [step, plan] of the next step of a run, both null at its end. The step's seconds count decisions and engine. */
async function turned(run, engine, memory) {
  const begun = performance.now();
  const plan = run.plan();
  if (!plan) return [null, null];
  const planned = performance.now();
  const reading = await engine.read(memory, plan);
  if (plan.listed.length) {
    const logits = await engine.logits(memory, plan.listed);
    reading.listed = logSoftmax(logits, run.shape.network.vocab_size);
  }
  const read = performance.now();
  const step = run.take(reading);
  const seconds = reading.seconds + (planned - begun + performance.now() - read) / 1000;
  const rows = find(step.newly_unmasked).map((slot) => plan.slots.indexOf(slot));
  return [{ ...step, seconds, commit_logits: await engine.logits(memory, rows) }, plan];
}
