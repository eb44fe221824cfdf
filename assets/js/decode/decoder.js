// The tables of rules and policies, and the reader of decoders' plain forms. It mirrors surelock/decoding/decoder.py.

import * as rules from "./compute.js";
import * as locking from "./locking.js";
import * as own from "./own.js";
import * as policies from "./unmasking.js";

/** A table of the classes that have a kind, except `Both`. A new rule or policy only needs a class in its file. */
function byKind(...modules) {
  const exported = modules.flatMap((module) => Object.values(module));
  const classes = exported.filter(({ kind }) => kind && kind !== rules.Both.kind);
  return Object.fromEntries(classes.map((Class) => [Class.kind, Class]));
}
const COMPUTE = byKind(rules, locking, own);
const UNMASK = byKind(policies);

/** The decoder {settings, compute, unmask, events} of a plain form, which must have every setting. */
export function readDecoder({ settings, compute, unmask, events = [] }) {
  return {
    settings: numbers(settings),
    compute: readCompute(compute),
    unmask: read(unmask, UNMASK),
    events: events.map(readEvent),
  };
}

function readCompute(plain) {
  if (plain.kind !== rules.Both.kind) return read(plain, COMPUTE);
  return new rules.Both({ lock: read(plain.lock, COMPUTE), select: read(plain.select, COMPUTE) });
}

const read = ({ kind, ...settings }, table) => new table[kind](numbers(settings));

const readEvent = (event) => (event.compute ? { ...event, compute: readCompute(event.compute) } : event);

/** Values with numbers in place of "inf" and "-inf": JSON has no infinities. */
function numbers(values) {
  const infinite = { inf: Number.POSITIVE_INFINITY, "-inf": Number.NEGATIVE_INFINITY };
  const number = (value) => (value?.constructor === Object ? numbers(value) : (infinite[value] ?? value));
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, number(value)]));
}
