// The page's decoder in Node, with ONNX Runtime Web: what touched.js and runs.js, asked by Python's tests, decode with.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import * as ort from "onnxruntime-web/wasm";
import { OnnxEngine } from "../../assets/js/decode/engine.js";

const GRAPHS = ["step", "head", "posterior"];

const bytesOf = (file) => new Uint8Array(readFileSync(file));

/** {asked: the JSON in asked.json of the folder that a command names, engine: of the folder's graphs and the weights in the
 * other files that it names}. asked.shape says what the engine decodes. */
export async function decoderFor([folder, ...weights]) {
  const asked = JSON.parse(readFileSync(join(folder, "asked.json"), "utf8"));
  const graphs = Object.fromEntries(GRAPHS.map((name) => [name, bytesOf(join(folder, name))]));
  const files = Object.fromEntries(weights.map((file) => [basename(file), bytesOf(file)]));
  ort.env.wasm.numThreads = 1;
  const engine = await OnnxEngine.load(ort, { config: asked.shape.network, graphs, files: () => files });
  return { asked, engine };
}
