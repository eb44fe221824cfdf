// Checks the request for a run that a browser decodes, and fills in defaults. The descriptions of settings are the
// library's. The refusals are those of surelock/ui/request.py in the words of the page.

import { EMPTY, isEmpty } from "../trace/blanks.js";
import { described, serverChoice } from "../trace/described.js";

const MOST_CHARACTERS = 20_000;
const NOT_ASKED = /, or None for [^,;]*|, or one per sequence/g;

const written = (count) => count.toLocaleString("en");

const shown = (value) => (typeof value === "string" ? `'${value}'` : String(value ?? "None"));

/** A rule or a policy that browsers cannot compute. The message is one sentence. */
export class NeedsServer extends RangeError {}

/**
 * A setting's value in the setting's type. A flag takes any value.
 * Throws a RangeError, one sentence, if the value of another setting does not fit.
 */
export function checked({ kind, label, range, low = -Infinity, high = Infinity, none }, plain) {
  if (none && (plain === null || plain === "" || plain === undefined)) return null;
  if (kind === "flag") return Boolean(plain);
  if (kind === "code" && typeof plain === "string" && plain.length <= high) return plain;
  const value = /^\d{1,9}$/.test(plain) ? Number(plain) : plain;
  const isWhole = kind !== "whole" || Number.isSafeInteger(value);
  if (typeof value === "number" && value >= low && value <= high && isWhole) return value;
  throw new RangeError(`${label} must be ${range.replaceAll(NOT_ASKED, "")}, not ${shown(plain)}`);
}

/** The checked values of settings. A missing setting gets its default. Throws a RangeError for a wrong one. */
function settingsIn({ settings }, values) {
  const unknown = Object.keys(values).find((name) => !Object.hasOwn(settings, name));
  if (unknown !== undefined) throw new RangeError(`${shown(unknown)} is no setting of this page`);
  const read = (setting, value = setting.default) => {
    if (setting.kind === "group") return value ? settingsIn(setting, value) : null;
    const bound = { inf: "high", "-inf": "low" }[value];
    const endless = bound && setting.kind === "number" && !(bound in setting);
    return endless || value === setting.default ? value : checked(setting, value);
  };
  return Object.fromEntries(Object.entries(settings).map(([name, setting]) => [name, read(setting, values[name])]));
}

/** A rule or a policy with all settings. Throws a RangeError for an unknown one. */
function choice(table, plain) {
  const { kind, ...settings } = plain ?? {};
  if (!Object.hasOwn(table, kind)) throw new RangeError(`${shown(kind)} is no rule or policy of this page`);
  return { kind, ...settingsIn(table[kind], settings) };
}

/** The compute choice of a lane with all settings: a rule, or a pair of rules. */
function computeOf(compute) {
  const rule = (plain) => choice(described.compute, plain);
  const { kind, lock, select } = compute ?? {};
  if (kind !== "both") return rule(compute);
  return { kind, lock: rule(lock), select: rule(select) };
}

/** {compute, unmask} of a lane with all settings. Throws a RangeError, one sentence. */
export function choicesOf({ compute, unmask: policy }) {
  const unmask = policy ?? { kind: "low_confidence" };
  const label = serverChoice({ compute: compute ?? {}, unmask });
  if (label) throw new NeedsServer(`“${label}” is computed on a server, and here is none`);
  return { compute: computeOf(compute), unmask: choice(described.unmask, unmask) };
}

function settingsOf(values) {
  const known = Object.entries(described.settings);
  return Object.fromEntries(known.map(([name, setting]) => [name, checked(setting, values[name])]));
}

const wholeEvent = (event) => (event.compute ? { ...event, compute: choicesOf(event).compute } : event);

/**
 * A lane of a branch, checked, with defaults for what it lacks. It comes from a trace, which may be damaged or from a
 * version of SureLock that had fewer settings.
 */
const wholeLane = (lane) => ({
  ...lane,
  settings: settingsIn(described, lane.settings),
  ...choicesOf(lane),
  events: (lane.events ?? []).map(wholeEvent),
});

/** A clause on the number of characters of a prompt that is too long, else "". */
export function overlong(text) {
  const { length } = Array.from(text); // code points; text.length would count some of them twice
  if (length <= MOST_CHARACTERS) return "";
  return `${written(length)} characters; at most ${written(MOST_CHARACTERS)} are taken here.`;
}

/**
 * The checked request for a run. Its lanes have the form of the lanes in a trace's header.
 * The argument is the request of a branch, or the form's values: {model, prompt, lanes, setting: value, ...}.
 * Throws a RangeError, one sentence.
 */
export function wholeRequest({ model, prompt, prompt_tokens, chat, lanes, ...values }) {
  const { from, lists } = values;
  if (prompt_tokens) return { model, prompt, prompt_tokens, lists, from, lanes: lanes.map(wholeLane) };
  if (isEmpty(prompt ?? "")) throw new RangeError(EMPTY);
  if (overlong(prompt)) throw new RangeError(`Prompt is too long: ${overlong(prompt)}`);
  const settings = settingsOf(values);
  const whole = ({ id, name, compute, unmask, events = [], parent = null }) => {
    return { ...{ id, name, compute, unmask, settings, parent }, events: events.map(wholeEvent) };
  };
  return { model, prompt, lanes: lanes.map(whole) };
}
