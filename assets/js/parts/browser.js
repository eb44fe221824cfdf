// A part of the page that comes when it is needed, see stage/part.js. What is there before is not in it again.

import "./core.js";
import { BrowserSource } from "../run/browser_source.js";
import { decoderInside, partsOf, workerAddress } from "../run/decoder_files.js";

/** What decodes that model in this browser, and what a page needs that decodes it. */
export async function decoderOf(name) {
  const source = new BrowserSource({ worker: await workerAddress(), where: () => partsOf(name), name });
  return { source, inside: decoderInside };
}
