// What a decoder in the browser is made of, fetched when the first run is asked for: a model's description of itself
// (its shape and its graphs), its weights, its tokenizer, and ONNX Runtime's own code, packed.

import { OnnxEngine } from "./engine.js";
import { TextTokenizer } from "./tokenizer.js";

const bytesOf = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

/** The body of an answer. hear(bytes) is told of each part that comes. Throws a RangeError, a sentence. */
async function fetched(url, hear = () => {}) {
  const failed = () =>
    new RangeError(`The decoder could not be fetched: ${url.pathname.split("/").at(-1)} did not come.`);
  const answer = await fetch(url).catch(() => null);
  if (!answer?.ok) throw failed();
  const parts = [];
  const reader = answer.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => {
      throw failed();
    });
    if (done) return new Blob(parts);
    parts.push(value);
    hear(value.length);
  }
}

const json = async (url) => JSON.parse(await (await fetched(url)).text());
const bytes = async (blob) => new Uint8Array(await new Response(blob).arrayBuffer());

/** {engine, tokenizer, shape} of a model. ort: ONNX Runtime Web. model: the folder of the model's files; runtime: where
 * the packed code lies; both URLs. hear(got, all) is told of bytes. Throws a RangeError, one sentence, for what does
 * not come whole. */
export async function assemble(ort, { model, runtime, runtimeBytes }, hear) {
  const at = (name) => new URL(name, model);
  const { shape, graphs, files } = await json(at("browser.json"));
  const all = Object.values(files).reduce((sum, size) => sum + size, runtimeBytes);
  let got = 0;
  const come = (more) => {
    got += more;
    hear(got, all);
  };
  const [packed, tokens, config, ...weights] = await Promise.all([
    fetched(runtime, come),
    json(at("tokenizer.json")),
    json(at("tokenizer_config.json")),
    ...Object.keys(files).map((name) => fetched(at(name), come)),
  ]);
  const named = Object.fromEntries(
    await Promise.all(Object.keys(files).map(async (name, i) => [name, await bytes(weights[i])])),
  );
  for (const [name, size] of Object.entries(files))
    if (named[name].length !== size) throw new RangeError(`The decoder could not be fetched: ${name} came in part.`);
  ort.env.wasm.wasmBinary = await bytes(packed.stream().pipeThrough(new DecompressionStream("gzip")));
  ort.env.wasm.numThreads = 1;
  const made = Object.fromEntries(Object.entries(graphs).map(([name, text]) => [name, bytesOf(text)]));
  const engine = await OnnxEngine.load(ort, { config: shape.network, graphs: made, files: named });
  return { engine, tokenizer: new TextTokenizer(tokens, config), shape };
}
