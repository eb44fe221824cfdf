// Shapes of JSON values: tests of what came from a file, a tab or a server.

export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
export const isText = (value) => typeof value === "string";
export const isCount = (value) => Number.isInteger(value) && value >= 0 && value < 2 ** 31;
export const orAbsent = (shape) => (value) => value === undefined || shape(value);
export const orNothing = (shape) => (value) => value === undefined || value === null || shape(value);
export const listOf = (shape) => (value) => Array.isArray(value) && value.every(shape);
export const mapOf = (shape) => (value) => isObject(value) && Object.values(value).every(shape);
export const having = (shapes) => (value) =>
  isObject(value) && Object.entries(shapes).every(([name, shape]) => shape(value[name]));
