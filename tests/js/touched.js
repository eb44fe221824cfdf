// Touches runs as a page's decoder does, with ONNX Runtime Web in Node: `node tests/js/touched.js FOLDER FILE...`, asked by
// tests/test_web_touched.py. Each touched run begins at a snapshot of the run before it, and is decoded from its first step,
// too. Prints {step, same, tokens} of each: where it began, whether both are the same, and its tokens at the end.

import assert from "node:assert/strict";
import { race } from "../../assets/js/decode/race.js";
import { Recorder } from "../../assets/js/decode/recorder.js";
import { Allowance, Snapshots } from "../../assets/js/decode/snapshots.js";
import { decoderFor } from "./library.js";

const { asked, engine } = await decoderFor(process.argv.slice(2));
const { shape, prompt, lanes } = asked;
const allowance = new Allowance();

/** A race of one lane: {recorder, snapshots, tokens}. origin: {recorder, snapshots, id, most}, where it may begin. */
async function decoded(lane, origin = null) {
  const header = { length: shape.length, steps: 99, prompt_tokens: prompt, mask_id: shape.mask_id, lanes: [lane] };
  header.model = { vocab_size: shape.network.vocab_size };
  const recorder = new Recorder(header, (ids) => Object.fromEntries(ids.map((id) => [id, ""])));
  const mine = {};
  const begun = origin?.snapshots.before(lane, origin.most) ?? 0;
  const begins = begun ? { [lane.id]: { snapshots: origin.snapshots, step: begun } } : {};
  if (begun) recorder.adopt(lane.id, origin.recorder, origin.id, begun);
  const snapshots = begun ? origin.snapshots.until(begun, lane, mine) : new Snapshots(lane, allowance, mine);
  let tokens = [];
  for await (const turn of race(engine, shape, prompt, [lane], { snapshots: { [lane.id]: snapshots }, begins })) {
    if (!turn.length) continue;
    recorder.take(turn);
    if (turn[0].step) tokens = Array.from(turn[0].step.tokens);
  }
  return { recorder, snapshots, id: lane.id, tokens, begun };
}

const untimed = (recorder) => recorder.document().records.map(({ seconds, ...record }) => record);

for (const { lane, touches } of lanes) {
  let origin = await decoded(lane);
  const found = [{ tokens: origin.tokens }];
  for (const [i, events] of touches.entries()) {
    const child = { ...lane, id: `touched-${i}`, events };
    const most = Math.max(...events.map(({ step }) => step));
    const touched = await decoded(child, { ...origin, most });
    const whole = await decoded(child);
    assert.deepEqual(untimed(touched.recorder), untimed(whole.recorder));
    if (!i) {
      const again = await decoded(child, { ...origin, most });
      assert.deepEqual(untimed(again.recorder), untimed(whole.recorder), "a snapshot begins several runs");
    }
    assert.ok(most - touched.begun < 8, `a run begins ${most - touched.begun} steps before its first other one`);
    found.push({ step: touched.begun, tokens: touched.tokens });
    origin = touched;
  }
  console.log(JSON.stringify(found));
}
