// Reads a link on a page without a server. One sentence says what of the link could not be followed. See
// surelock/ui/link.py.

import { described } from "../trace/described.js";
import { MOST_LANES } from "../trace/states.js";
import { checked, choicesOf, NeedsServer } from "./asked.js";

const numberOr = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);
const fromText = ({ kind }, text) => (kind === "flag" ? text === "true" : numberOr(text));

function laneOf({ name, compute, unmask }, i) {
  return {
    id: `lane-${i + 1}`,
    name: typeof name === "string" && name.trim() ? name.slice(0, 80) : "Your own",
    preset: null,
    ...choicesOf({ compute, unmask }),
  };
}

/**
 * {values, lanes, said} of a link. settings: the query of the link, a text. model: the name of the page's model.
 * values: the prompt and the settings that the query names.
 * lanes: the first four lanes of the query; null if the query names no lanes or its lanes cannot be read.
 * said: a sentence about what could not be followed, or "".
 */
export function readLink(settings, model) {
  const query = new URLSearchParams(settings);
  const values = {};
  const problems = [];
  const read = (name, called, f) => {
    if (!query.get(name)) return null;
    try {
      return f(query.get(name));
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof SyntaxError || error instanceof TypeError)) throw error;
      problems.push(error instanceof NeedsServer ? error.message : `${called} cannot be read (left as it is)`);
      return null;
    }
  };
  if ((query.get("model") || model) !== model) problems.push(`this page has the model “${model}” alone`);
  if (query.get("prompt")) values.prompt = query.get("prompt");
  for (const [name, setting] of Object.entries(described.settings)) {
    const value = read(name, setting.label, (text) => checked(setting, fromText(setting, text)));
    if (value !== null) values[name] = value;
  }
  const lanes = read("lanes", "who races", (text) => JSON.parse(text).slice(0, MOST_LANES).map(laneOf));
  return {
    values,
    lanes,
    said: problems.length ? `Not all of this link could be followed: ${problems.join("; ")}.` : "",
  };
}
