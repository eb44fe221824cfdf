// The files that a decoder in the browser is made of, wherever this page has them.

import { packedText } from "../decode/packed.js";
import { addressOf, beside, fileOf, packed } from "./files.js";

const WORKER = "scripts/worker.js";
const RUNTIME = "scripts/ort.wasm.gz";
const INTERPRETER = "scripts/quickjs.wasm.gz";
const PRESETS = "presets.json";

/** Where a decoder's parts are: DecoderPlaces, see `assemble`. */
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

export const workerAddress = () => addressOf(WORKER);

/** What a replay holds that can decode: {model, presets}; null of any other. */
export async function decoderHere() {
  return packed.has(PRESETS) ? (await fileOf(PRESETS)).json() : null;
}

/**
 * The decoder of a model as the script elements of a page that holds it, null where a part does not come.
 * presets: rules that a lane can have there.
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
