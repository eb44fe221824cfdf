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

/** The content of a packed file, bytes. Throws a TypeError or a SyntaxError for one that is damaged. */
export async function unpacked(blob) {
  const gzip = new Blob([bytesOf(await blob.text())]);
  const content = new Response(gzip.stream().pipeThrough(new DecompressionStream("gzip")));
  return new Uint8Array(await content.arrayBuffer());
}
