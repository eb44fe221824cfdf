// Files that stand inside a page which is one file, as base64 of gzip.

import { join } from "./arrays.js";

export const bytesOf = (text) =>
  Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

export async function packedText({ body }) {
  const gzip = await new Response(body.pipeThrough(new CompressionStream("gzip"))).blob();
  const reader = new FileReader();
  const read = new Promise((then) => reader.addEventListener("load", then));
  reader.readAsDataURL(gzip);
  await read;
  return reader.result.slice(reader.result.indexOf(",") + 1);
}

/**
 * All bytes of a stream. hear(bytes) gets the size of every part.
 * It uses no Blob: in WebKit a worker of a page that was opened from a disk cannot read one.
 * It uses no Response either: what that holds would stay in memory until the browser collects it.
 */
export async function gathered(stream, hear = () => {}) {
  const parts = [];
  const reader = stream.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    parts.push(value);
    hear(value.length);
  }
  return join(parts, Uint8Array);
}

/** The content of gzip, bytes. Throws a TypeError for one that is damaged. */
export async function gunzipped(bytes) {
  const { readable, writable } = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  const [content] = await Promise.all([gathered(readable), writer.write(bytes), writer.close()]);
  return content;
}

/** The bytes of a packed file. text: the file, as base64 of gzip. Throws a TypeError or a DOMException for a damaged one. */
export const unpacked = async (text) => gunzipped(bytesOf(text));
