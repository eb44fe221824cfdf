// The page's own files: beside its scripts' folder, or, of a page that is one file, packed inside it.

import { unpacked } from "../decode/packed.js";

const TYPES = { js: "text/javascript", json: "application/json", txt: "text/plain" };
const nodes = [...(globalThis.document?.querySelectorAll("script[data-file]") ?? [])];
const packed = new Map(nodes.map((node) => [node.dataset.file, new Blob([node.textContent])]));
for (const node of nodes) node.remove(); // megabytes of text

const beside = (name) => new URL(`../${name}`, import.meta.url);

async function blobOf(name) {
  return new Blob([await unpacked(packed.get(name))], { type: TYPES[name.split(".").at(-1)] });
}

/** An answer with that file, as `fetch` gives it. */
export const fileOf = async (name) => (packed.has(name) ? new Response(await blobOf(name)) : fetch(beside(name)));

/** The address of that file. */
export const addressOf = async (name) =>
  packed.has(name) ? URL.createObjectURL(await blobOf(name)) : beside(name).href;

/** Where a decoder's parts are, see `assemble`. */
export function partsOf(model) {
  const [folder, runtime] = [`${model}/`, "scripts/ort.wasm.gz"];
  if (!packed.has(runtime)) return { model: beside(folder).href, runtime: beside(runtime).href };
  const own = [...packed].filter(([name]) => name.startsWith(folder));
  const files = Object.fromEntries(own.map(([name, blob]) => [name.slice(folder.length), blob]));
  return { model: files, runtime: packed.get(runtime) };
}
