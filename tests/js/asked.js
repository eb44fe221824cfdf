// What the form asks for, read as where no server does: `node tests/js/asked.js` prints of each of its
// input's `forms` the lanes, or the sentence of a refusal.

import { readFileSync } from "node:fs";

const { described, forms } = JSON.parse(readFileSync(0, "utf8"));
globalThis.document = { getElementById: () => ({ textContent: JSON.stringify(described) }) };
const { wholeRequest } = await import("../../assets/js/run/asked.js");

function told(form) {
  try {
    return wholeRequest(form).lanes;
  } catch (error) {
    if (error instanceof RangeError) return error.message;
    throw error;
  }
}

console.log(JSON.stringify(forms.map(told)));
