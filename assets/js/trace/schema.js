// The check of a trace's structure: a reader of surelock/trace/schema.json, for the keywords of JSON Schema 2020-12 that it
// uses. A fault is {at, what}: where, as /a/b/0, and what "it must". A check is x -> its first fault, or undefined.

import schema from "../../../surelock/trace/schema.json" with { type: "json" };

const always = () => true;
const number = (x) => typeof x === "number";
const string = (x) => typeof x === "string";
const array = Array.isArray;
const object = (x) => typeof x === "object" && x !== null && !array(x);
const none = (x) => x === null;
const boolean = (x) => typeof x === "boolean";
const TYPES = { null: none, boolean, integer: Number.isInteger, number, string, array, object };

const must = (good, what) => (x) => (good(x) ? undefined : { at: "", what });
const has = (name) => must((x) => x[name] !== undefined, `have required property '${name}'`);

/** The check of what an object or a list has under a name. */
const within = (name, check) => (x) => {
  const fault = check(x[name]);
  return fault && { at: `/${name}${fault.at}`, what: fault.what };
};

const all = (checks) => (x) => {
  for (const check of checks) {
    const fault = check(x);
    if (fault) return fault;
  }
};

/** By keyword, in the order of telling: the values that it speaks of, and (its value, the schema around it) -> a check. */
const KEYWORDS = {
  $ref: [always, (name) => read(schema.$defs[name.slice("#/$defs/".length)])],
  type: [always, (type) => typed([type].flat())],
  maximum: [number, (most) => must((x) => x <= most, `be <= ${most}`)],
  minimum: [number, (least) => must((x) => x >= least, `be >= ${least}`)],
  pattern: [string, (pattern) => must((x) => new RegExp(pattern, "u").test(x), `match pattern "${pattern}"`)],
  const: [always, (value) => must((x) => x === value, "be equal to constant")],
  enum: [always, (values) => must((x) => values.includes(x), "be equal to one of the allowed values")],
  anyOf: [always, (parts) => anyOf(parts.map(read))],
  if: [always, (part, { then, else: otherwise = {} }) => chosen(read(part), read(then), read(otherwise))],
  maxItems: [array, (most) => must((x) => x.length <= most, `NOT have more than ${most} items`)],
  minItems: [array, (least) => must((x) => x.length >= least, `NOT have fewer than ${least} items`)],
  items: [array, (part) => each(read(part))],
  required: [object, (names) => all(names.map(has))],
  additionalProperties: [object, (part, { properties = {} }) => others(properties, read(part))],
  properties: [object, (parts) => all(Object.entries(parts).map(property))],
};
/** Keywords that say nothing by themselves. */
const BESIDE = ["$schema", "$defs", "title", "description", "contentEncoding", "then", "else"];

function property([name, part]) {
  const check = within(name, read(part));
  return (x) => (x[name] === undefined ? undefined : check(x));
}

function typed(names) {
  const types = names.map((name) => TYPES[name]);
  return must((x) => types.some((is) => is(x)), `be ${names}`);
}

const anyOf = (checks) => (x) => (checks.some((check) => !check(x)) ? undefined : checks[0](x));
const chosen = (condition, then, otherwise) => (x) => (condition(x) ? otherwise : then)(x);

const each = (check) => (x) => {
  const i = x.findIndex((item) => check(item));
  return i < 0 ? undefined : within(i, check)(x);
};

const others = (known, check) => (x) => {
  const names = Object.keys(x).filter((name) => !Object.hasOwn(known, name));
  const name = names.find((other) => check(x[other]));
  return name === undefined ? undefined : within(name, check)(x);
};

/** The check that a schema stands for. Throws an Error for a keyword that it does not know. */
export function read(part) {
  const strange = Object.keys(part).find((word) => !(word in KEYWORDS) && !BESIDE.includes(word));
  if (strange) throw new Error(`The keyword ${strange} of the trace's schema is not read here.`);
  const words = Object.entries(KEYWORDS).filter(([word]) => word in part);
  const checks = words.map(([word, [applies, check]]) => [applies, check(part[word], part)]);
  return all(
    checks.map(([applies, check]) => (applies === always ? check : (x) => (applies(x) ? check(x) : undefined))),
  );
}

/** The first fault of a trace's document, or undefined. */
export const faultOf = read(schema);
