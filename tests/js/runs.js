// Decodes what a folder of tests/test_web_engine.py asks for, with ONNX Runtime Web in Node: node tests/js/runs.js
// FOLDER FILE... Prints the tokens and the locked positions after each step of each run. FILES hold the weights.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import * as ort from "onnxruntime-web/wasm";
import { Run } from "../../assets/js/decode/algorithm.js";
import { readDecoder } from "../../assets/js/decode/decoder.js";
import { OnnxEngine } from "../../assets/js/decode/engine.js";

const [folder, ...weights] = process.argv.slice(2);
const bytes = (file) => new Uint8Array(readFileSync(file));
const { shape, prompt, decoders } = JSON.parse(readFileSync(join(folder, "asked.json"), "utf8"));
const graphs = Object.fromEntries(["step", "head", "posterior"].map((name) => [name, bytes(join(folder, name))]));
const files = Object.fromEntries(weights.map((file) => [basename(file), bytes(file)]));

ort.env.wasm.numThreads = 1;
const engine = await OnnxEngine.load(ort, { config: shape.network, graphs, files: () => files });
const flat = (values) => Array.from(values);

for (const { decoder, ...observing } of decoders) {
  const run = new Run(shape, prompt, readDecoder(decoder), observing);
  const memory = engine.memory(run.layout);
  const steps = [];
  for (let plan = run.plan(); plan; plan = run.plan()) {
    const step = run.take(await engine.read(memory, plan));
    const { tokens, locked, computed, kl, confidence } = step;
    steps.push([tokens, locked, computed, kl, confidence, step.top_ids ?? [], step.top_probs ?? []].map(flat));
  }
  console.log(JSON.stringify(steps)); // NaN and infinity become null
}
