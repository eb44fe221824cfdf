// Shapes of JSON values from a file, a tab or a server. A shape is a function that returns whether a value has it. A
// value without its shape is refused in one sentence.

export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
export const isText = (value) => typeof value === "string";
export const isCount = (value) => Number.isInteger(value) && value >= 0 && value < 2 ** 31;
export const orAbsent = (shape) => (value) => value === undefined || shape(value);
export const orNothing = (shape) => (value) => value === undefined || value === null || shape(value);
export const listOf = (shape) => (value) => Array.isArray(value) && value.every(shape);
export const mapOf = (shape) => (value) => isObject(value) && Object.values(value).every(shape);
export const having = (shapes) => (value) =>
  isObject(value) && Object.entries(shapes).every(([name, shape]) => shape(value[name]));

/** The entry of `check` for a part that may be absent (maybe), or absent or null (nullable). */
export const maybe = ([shape, must]) => [orAbsent(shape), must];
export const nullable = ([shape, must]) => [orNothing(shape), `${must}, or null`];

/** A trace that cannot be played; the message is one sentence for a reader. */
export class TraceError extends Error {}
/** A TraceError about a damaged part. what: a clause. */
export const damaged = (what) => new TraceError(`The trace is damaged: ${what}.`);

/**
 * Throws TraceError unless a value is an object whose parts have their shapes.
 * @param {*} value
 * @param {Object<string, [function(*): boolean, string]>} parts by name, the shape and its description
 * @param {string} whose the name of the value in the message
 */
export function check(value, parts, whose) {
  if (!isObject(value)) throw damaged(`${whose} must be an object`);
  for (const [name, [isRight, must]] of Object.entries(parts))
    if (!isRight(value[name])) throw damaged(`“${name}” of ${whose} must be ${must}`);
}
