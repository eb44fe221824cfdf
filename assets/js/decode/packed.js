// Files that stand inside a page which is one file: each as base64 of gzip.

const bytesOf = (text) => Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

/** What comes, packed. */
export async function packedText({ body }) {
  const gzip = await new Response(body.pipeThrough(new CompressionStream("gzip"))).blob();
  const reader = new FileReader();
  const read = new Promise((then) => reader.addEventListener("load", then));
  reader.readAsDataURL(gzip);
  await read;
  return reader.result.slice(reader.result.indexOf(",") + 1);
}

/** The content of gzip, bytes. Throws a TypeError for one that is damaged. It goes without a Blob, which no worker of a
 * file from a disk can read in WebKit. */
export async function gunzipped(bytes) {
  const { readable, writable } = new DecompressionStream("gzip");
  const written = new Response(bytes).body.pipeTo(writable);
  const [content] = await Promise.all([new Response(readable).arrayBuffer(), written]);
  return new Uint8Array(content);
}

/** The content of a packed file, bytes. text: that of the file. Throws a TypeError or a DOMException for one that is
 * damaged. */
export const unpacked = async (text) => gunzipped(bytesOf(text));
