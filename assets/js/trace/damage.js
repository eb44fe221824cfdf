// What cannot be read is refused where it is read, in one sentence.

import { isObject } from "./shapes.js";

/** A trace that cannot be played; the message is one sentence for a reader. */
export class TraceError extends Error {}
export const damaged = (what) => new TraceError(`The trace is damaged: ${what}.`);

/** Throws TraceError unless a value is an object whose parts have their shapes. parts: {name: [shape, what it must be]}. */
export function check(value, parts, whose) {
  if (!isObject(value)) throw damaged(`${whose} must be an object`);
  for (const [name, [isRight, must]] of Object.entries(parts))
    if (!isRight(value[name])) throw damaged(`“${name}” of ${whose} must be ${must}`);
}
