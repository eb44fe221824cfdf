// The page's files. They are beside the folder of its scripts, or packed inside a page that is one file.

import { unpacked } from "../decode/packed.js";

const TYPES = { js: "text/javascript", json: "application/json", txt: "text/plain" };
const nodes = [...(globalThis.document?.querySelectorAll("script[data-file]") ?? [])];
/** The packed files inside the page, by name. */
export const packed = new Map(nodes.map((node) => [node.dataset.file, new Blob([node.textContent])]));
for (const node of nodes) node.remove(); // megabytes of text

/** The URL of a file beside the folder of the page's scripts. */
export const beside = (name) => new URL(`../${name}`, import.meta.url);

async function blobOf(name) {
  return new Blob([await unpacked(await packed.get(name).text())], { type: TYPES[name.split(".").at(-1)] });
}

/** A promise of a file as a Response. */
export const fileOf = async (name) => (packed.has(name) ? new Response(await blobOf(name)) : fetch(beside(name)));

/** A promise of an address from which a file can be loaded. */
export const addressOf = async (name) =>
  packed.has(name) ? URL.createObjectURL(await blobOf(name)) : beside(name).href;

/** A promise of the edition (ETag) of the page's script on the server. */
export const edition = async () =>
  (await fetch(beside("scripts/page.js"), { method: "HEAD", cache: "no-store" })).headers.get("etag");
