// Reads packed files: files inside a page that is one file, compressed by gzip and written as base64.

import { join } from "./arrays.js";

/** The bytes of a base64 text. */
export const bytesOf = (text) =>
  Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

/** A promise of the packed text of a Response's content. */
export async function packedText({ body }) {
  const gzip = await new Response(body.pipeThrough(new CompressionStream("gzip"))).blob();
  const reader = new FileReader();
  const read = new Promise((then) => reader.addEventListener("load", then));
  reader.readAsDataURL(gzip);
  await read;
  return reader.result.slice(reader.result.indexOf(",") + 1);
}

/**
 * A promise of all bytes of a stream. hear(bytes): called with the size of every part.
 * It uses no Blob: in WebKit, a worker of a page that was opened from a disk cannot read a Blob.
 * It uses no Response: its content would stay in memory until garbage is collected.
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

/** A promise of the decompressed bytes of gzip. Throws a TypeError for damaged bytes. */
export async function gunzipped(bytes) {
  const { readable, writable } = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  const [content] = await Promise.all([gathered(readable), writer.write(bytes), writer.close()]);
  return content;
}

/** A promise of the bytes of a packed file. Throws a TypeError or a DOMException for a damaged file. */
export const unpacked = async (text) => gunzipped(bytesOf(text));
