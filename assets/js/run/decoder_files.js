// Finds the files of a decoder in the browser, beside the page or packed inside it.

import { packedText } from "../decode/packed.js";
import { addressOf, beside, fileOf, packed } from "./files.js";

const WORKER = "scripts/worker.js";
const RUNTIME = "scripts/ort.wasm.gz";
const INTERPRETER = "scripts/quickjs.wasm.gz";
const PRESETS = "presets.json";

/** A promise of the DecoderPlaces of a model, see `assemble`. */
export async function partsOf(model) {
  const folder = `${model}/`;
  if (!packed.has(RUNTIME)) {
    const addressIn = (name) => beside(name).href;
    return { model: addressIn(folder), runtime: addressIn(RUNTIME), interpreter: addressIn(INTERPRETER) };
  }
  const textOf = async (name) => ({ packed: await packed.get(name).text() });
  const names = [...packed.keys()].filter((name) => name.startsWith(folder));
  const files = await Promise.all(names.map(async (name) => [name.slice(folder.length), await textOf(name)]));
  const [runtime, interpreter] = await Promise.all([RUNTIME, INTERPRETER].map(textOf));
  return { model: Object.fromEntries(files), runtime, interpreter };
}

/** A promise of the address of the worker's script. */
export const workerAddress = () => addressOf(WORKER);

/** A promise of {model, presets} of the decoder inside a replay, null if the page contains no decoder. */
export async function decoderHere() {
  return packed.has(PRESETS) ? (await fileOf(PRESETS)).json() : null;
}

/**
 * A promise of the decoder of a model as script elements for an exported page, null if a part cannot be fetched.
 * presets: the rules that lanes of the exported page can have.
 */
export async function decoderInside(model, presets) {
  try {
    const described = await fileOf(`${model}/browser.json`);
    const { files } = await described.clone().json();
    const names = [WORKER, RUNTIME, INTERPRETER, ...Object.keys(files).map((name) => `${model}/${name}`)];
    const answers = await Promise.all(names.map(fileOf));
    if (!answers.every(({ ok }) => ok)) return null;
    const all = { [PRESETS]: new Response(JSON.stringify({ model, presets })), [`${model}/browser.json`]: described };
    names.forEach((name, i) => {
      all[name] = answers[i];
    });
    const element = async ([name, answer]) =>
      `<script type="text/plain" data-file="${name}">${await packedText(answer)}</script>`;
    return (await Promise.all(Object.entries(all).map(element))).join("\n");
  } catch (error) {
    if (error instanceof TypeError || error instanceof SyntaxError) return null; // no network
    throw error;
  }
}
