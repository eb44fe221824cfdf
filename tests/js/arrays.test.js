// What the decoder's arrays are given back with, where the browser can.

import assert from "node:assert/strict";
import test from "node:test";

import { release } from "../../assets/js/decode/arrays.js";

test("memory is given back at once, and in an older browser when it is collected", (t) => {
  const transfer = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "transfer"); // none in Node 20
  t.after(() => transfer && Object.defineProperty(ArrayBuffer.prototype, "transfer", transfer));
  ArrayBuffer.prototype.transfer ??= function () {
    return structuredClone(this, { transfer: [this] });
  };
  const gone = new Float32Array(8);
  release(gone);
  assert.equal(gone.length, 0);
  delete ArrayBuffer.prototype.transfer;
  const kept = new Float32Array(8);
  release(kept);
  assert.equal(kept.length, 8);
});
