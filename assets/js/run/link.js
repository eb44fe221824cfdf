// What a link asks for, where no server reads it, and one sentence for what of it cannot be had. See surelock/ui/link.py.

import { described } from "../trace/described.js";
import { MOST_LANES } from "../trace/trace.js";
import { checked } from "./asked.js";

const numberOr = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);
const fromText = ({ kind }, text) => (kind === "flag" ? text === "true" : numberOr(text));

/** A rule or a policy, whole. Throws a RangeError for one that is none. */
function choice(table, plain) {
  const { kind, ...given } = plain ?? {};
  if (!Object.hasOwn(table, kind)) throw new RangeError(`${kind} is none`);
  return { kind, ...settingsIn(table[kind], given) };
}

function settingsIn({ settings }, given) {
  const read = (setting, value) => {
    if (setting.kind === "group") return value ? settingsIn(setting, value) : null;
    return value === "inf" || value === setting.default ? value : checked(setting, value);
  };
  const all = Object.entries(settings);
  return Object.fromEntries(all.map(([name, each]) => [name, read(each, given[name] ?? each.default)]));
}

function laneOf({ name, compute, unmask = { kind: "low_confidence" } }, i) {
  const { kind, lock, select } = compute ?? {};
  const rule = (plain) => choice(described.compute, plain);
  return {
    id: `lane-${i + 1}`,
    name: typeof name === "string" && name.trim() ? name.slice(0, 80) : "Your own",
    preset: null,
    compute: kind === "both" ? { kind, lock: rule(lock), select: rule(select) } : rule(compute),
    unmask: choice(described.unmask, unmask),
  };
}

/** {values: {prompt, setting: value} as far as a query names them, lanes, said}: lanes null where it names none. */
export function readLink(settings, model) {
  const query = new URLSearchParams(settings);
  const [values, problems] = [{}, []];
  const read = (name, called, f) => {
    if (!query.get(name)) return null;
    try {
      return f(query.get(name));
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof SyntaxError || error instanceof TypeError)) throw error;
      problems.push(`${called} cannot be read (left as it is)`);
      return null;
    }
  };
  if ((query.get("model") || model) !== model) problems.push(`this page has the model “${model}” alone`);
  if (query.get("prompt")) values.prompt = query.get("prompt");
  for (const [name, setting] of Object.entries(described.settings)) {
    const value = read(name, setting.label, (text) => checked(setting, fromText(setting, text)));
    if (value !== null) values[name] = value;
  }
  const lanes = read("contestants", "who races", (text) => JSON.parse(text).slice(0, MOST_LANES).map(laneOf));
  return {
    values,
    lanes,
    said: problems.length ? `Not all of this link could be followed: ${problems.join("; ")}.` : "",
  };
}
