// What the form asks for, whole and checked, for a decoder that has no server to check it: its settings' descriptions
// are the library's, and the refusals are those of surelock/ui/request.py in the words of the page.

import { EMPTY, isEmpty } from "../trace/blanks.js";
import { described, serverChoice } from "../trace/described.js";

const MOST_CHARACTERS = 20_000;
const NOT_ASKED = /, or None for [^,;]*|, or one per sequence/g;

const written = (count) => count.toLocaleString("en");

const shown = (value) => (typeof value === "string" ? `'${value}'` : String(value ?? "None"));

/** A rule or a policy that no browser has. Its message is one sentence. */
export class NeedsServer extends RangeError {}

/** A setting's value in its own type. Throws a RangeError, one sentence, when it is none that fits. */
export function checked({ kind, label, range, low = -Infinity, high = Infinity, none }, given) {
  if (none && (given === null || given === "" || given === undefined)) return null;
  if (kind === "flag") return Boolean(given);
  if (kind === "code" && typeof given === "string" && given.length <= high) return given;
  const value = /^\d{1,9}$/.test(given) ? Number(given) : given;
  const isWhole = kind !== "whole" || Number.isSafeInteger(value);
  if (typeof value === "number" && value >= low && value <= high && isWhole) return value;
  throw new RangeError(`${label} must be ${range.replaceAll(NOT_ASKED, "")}, not ${shown(given)}`);
}

/** Settings by their descriptions: one that is lacking has its default. */
function settingsIn({ settings }, given) {
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(settings, name));
  if (unknown !== undefined) throw new RangeError(`${shown(unknown)} is no setting of this page`);
  const read = (setting, value = setting.default) => {
    if (setting.kind === "group") return value ? settingsIn(setting, value) : null;
    const bound = { inf: "high", "-inf": "low" }[value];
    const endless = bound && setting.kind === "number" && !(bound in setting);
    return endless || value === setting.default ? value : checked(setting, value);
  };
  return Object.fromEntries(Object.entries(settings).map(([name, each]) => [name, read(each, given[name])]));
}

/** A rule or a policy, whole. Throws a RangeError for one that is none. */
function choice(table, plain) {
  const { kind, ...given } = plain ?? {};
  if (!Object.hasOwn(table, kind)) throw new RangeError(`${shown(kind)} is no rule or policy of this page`);
  return { kind, ...settingsIn(table[kind], given) };
}

/** {compute, unmask} of a lane, whole; of a pair two rules. Throws a RangeError, one sentence. */
export function choicesOf({ compute, unmask: policy }) {
  const unmask = policy ?? { kind: "low_confidence" };
  const label = serverChoice({ compute: compute ?? {}, unmask });
  if (label) throw new NeedsServer(`“${label}” is computed on a server, and here is none`);
  const { kind, lock, select } = compute ?? {};
  const rule = (plain) => choice(described.compute, plain);
  return {
    compute: kind === "both" ? { kind, lock: rule(lock), select: rule(select) } : rule(compute),
    unmask: choice(described.unmask, unmask),
  };
}

function settingsOf(values) {
  return Object.fromEntries(
    Object.keys(described.settings).map((name) => [name, checked(described.settings[name], values[name])]),
  );
}

const wholeEvent = (event) => (event.compute ? { ...event, compute: choicesOf(event).compute } : event);

/** A lane of a branch, whose trace may be older than some settings, or damaged. */
const wholeLane = (lane) => ({
  ...lane,
  settings: settingsIn(described, lane.settings),
  ...choicesOf(lane),
  events: (lane.events ?? []).map(wholeEvent),
});

/** How many characters a prompt has, where those are more than are taken, or "". */
export function overlong(text) {
  const { length } = Array.from(text); // not of halves of characters, of which the text's own length is
  if (length <= MOST_CHARACTERS) return "";
  return `${written(length)} characters; at most ${written(MOST_CHARACTERS)} are taken here.`;
}

/** A run's request, each lane whole as a trace's header has it, of one that a branch asks for or of the form's values:
 * {model, prompt, lanes, setting: value, ...}. Throws a RangeError, one sentence. */
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
