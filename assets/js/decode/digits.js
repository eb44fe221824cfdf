// Eight hexadecimal digits that identify a model's weights, so that two pages can find out whether they have the same
// weights. They mirror surelock/model/digits.py.

import { sha256 } from "@noble/hashes/sha2.js";

const SAMPLES = 64;
const SAMPLE_BYTES = 4096;

/** The digits of a model's files. files: bytes by name. */
export function digitsOfWeights(files) {
  const digest = sha256.create();
  for (const name of Object.keys(files).sort()) {
    const bytes = files[name];
    const size = new Uint8Array(8);
    new DataView(size.buffer).setBigUint64(0, BigInt(bytes.length), true);
    digest.update(size);
    const room = Math.max(0, bytes.length - SAMPLE_BYTES);
    for (let number = 0; number < SAMPLES; number++) {
      const from = Math.floor((room * number) / (SAMPLES - 1));
      digest.update(bytes.subarray(from, from + SAMPLE_BYTES));
    }
  }
  return Array.from(digest.digest().subarray(0, 4), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
