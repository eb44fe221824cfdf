// The tables of rules and policies, and the plain forms of decoders, as surelock/decoding/choices.py has them.

import { BlockCache, Both, BudgetRule, DelayedCache, EntropyCache, Everything, SelectRule } from "./compute.js";
import { LockByAge, LockRule } from "./locking.js";
import { OwnRule } from "./own.js";
import {
  EarlyFinish,
  Entropy,
  EntropyBound,
  Klass,
  LowConfidence,
  Margin,
  Random,
  Remask,
  Threshold,
} from "./unmasking.js";

const byKind = (...classes) => Object.fromEntries(classes.map((each) => [each.kind, each]));

/** Every rule and every policy. A new one is a class in its file and a name here. */
const RULES = [
  Everything,
  LockRule,
  LockByAge,
  SelectRule,
  BudgetRule,
  BlockCache,
  DelayedCache,
  EntropyCache,
  OwnRule,
];
const POLICIES = [LowConfidence, Random, Entropy, Margin, Threshold, Klass, EntropyBound, EarlyFinish, Remask];
const [COMPUTE, UNMASK] = [byKind(...RULES), byKind(...POLICIES)];

/** {settings, compute, unmask, events} of a decoder's plain form, which is whole: every setting stands there. */
export function readDecoder({ settings, compute, unmask, events = [] }) {
  return {
    settings: numbers(settings),
    compute: readCompute(compute),
    unmask: read(unmask, UNMASK),
    events: events.map(readEvent),
  };
}

function readCompute(plain) {
  if (plain.kind !== Both.kind) return read(plain, COMPUTE);
  return new Both({ lock: read(plain.lock, COMPUTE), select: read(plain.select, COMPUTE) });
}

const read = ({ kind, ...settings }, table) => new table[kind](numbers(settings));

const readEvent = (event) => (event.compute ? { ...event, compute: readCompute(event.compute) } : event);

/** JSON has no infinities: they come as text. */
function numbers(values) {
  const infinite = { inf: Number.POSITIVE_INFINITY, "-inf": Number.NEGATIVE_INFINITY };
  const number = (value) => (value?.constructor === Object ? numbers(value) : (infinite[value] ?? value));
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, number(value)]));
}
