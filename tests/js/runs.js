// Decodes what a folder of tests/test_web_engine.py asks for, with ONNX Runtime Web in Node: node tests/js/runs.js
// FOLDER FILE... Prints the tokens and the locked positions after each step of each run. FILES hold the weights.

import assert from "node:assert/strict";
import { Run } from "../../assets/js/decode/algorithm.js";
import { readDecoder } from "../../assets/js/decode/decoder.js";
import { decoderFor } from "./library.js";

const { asked, engine } = await decoderFor(process.argv.slice(2));
const { shape, prompt, decoders } = asked;
const flat = (values) => Array.from(values);

for (const { decoder, ...observing } of decoders) {
  const run = new Run(shape, prompt, readDecoder(decoder), observing);
  const memory = engine.memory(run.layout);
  const steps = [];
  for (let plan = run.plan(); plan; plan = run.plan()) {
    const reading = await engine.read(memory, plan);
    const likeliest = plan.slots.map((_, row) =>
      plan.watches[row] && !plan.probed[row] ? reading.top_ids[row * plan.top_k] : -1,
    );
    if (plan.top_k) assert.deepEqual(reading.likeliest(), likeliest);
    const step = run.take(reading);
    const { tokens, locked, computed, kl, confidence } = step;
    steps.push([tokens, locked, computed, kl, confidence, step.top_ids ?? [], step.top_probs ?? []].map(flat));
  }
  console.log(JSON.stringify(steps)); // NaN and infinity become null
}
