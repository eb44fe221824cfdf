// What tests/vectors.py packs.

const ARRAYS = { u1: Uint8Array, i4: Int32Array, f8: Float64Array };

/** What was packed: arrays from their bytes. */
export function unpacked(value) {
  if (Array.isArray(value)) return value.map(unpacked);
  if (value === null || typeof value !== "object") return value;
  if (!("bytes" in value))
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpacked(each)]));
  const bytes = Uint8Array.from(Buffer.from(value.bytes, "base64"));
  return new ARRAYS[value.kind](bytes.buffer);
}
