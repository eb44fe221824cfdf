// The provisional trace of a link, which is shown until its run opens: the link's prompt, word by word, and masks.

import "../loaded_first.js";
import { BLANK, blanksOf, LIST } from "../trace/blanks.js";
import { described } from "../trace/described.js";
import { Trace } from "../trace/trace.js";

const MASK = 1;
const FIRST = 2;
const MOST = 2048;
const USUAL = 64;
const PARTS = new RegExp(`(?<blank>\\s*${BLANK})${LIST}|\\s*\\S+?(?=\\s|$|${BLANK})`, "gu");

/** {prompt_tokens, pieces} of a text. Every word is one token. A blank has one mask per underscore. */
function wordsOf(text) {
  const tokens = [];
  const pieces = {};
  for (const { 0: word, groups } of text.matchAll(PARTS)) {
    if (groups.blank) {
      tokens.push(...new Array(blanksOf(groups.blank)[0]).fill(MASK));
      continue;
    }
    const id = FIRST + Object.keys(pieces).length;
    pieces[id] = word;
    tokens.push(id);
  }
  return { prompt_tokens: tokens, pieces };
}

/**
 * The trace without steps of a link.
 * settings: the link's query. lanes: the lanes of the page's first run, used if the link names no lanes.
 */
export function provisional(settings, lanes) {
  const query = new URLSearchParams(settings);
  const prompt = (query.get("prompt") ?? "").slice(0, 20_000);
  const wanted = Number(query.get("gen_length") ?? described.settings.gen_length?.default ?? USUAL);
  const { prompt_tokens, pieces } = wordsOf(prompt);
  const tokens = prompt_tokens.slice(0, MOST);
  const gen_length = Number.isInteger(wanted) && wanted >= 0 ? Math.min(wanted, MOST) : USUAL;
  // The run will be refused, since it has nothing to write.
  if (!gen_length && !tokens.includes(MASK)) tokens.push(MASK);
  const steps = Math.max(1, gen_length);
  const chosenLanes = lanesIn(query) ?? lanes;
  const header = {
    model: { name: query.get("model") ?? "" },
    prompt,
    prompt_tokens: tokens,
    mask_id: MASK,
    eos_id: null,
    length: tokens.length + gen_length,
    steps,
    lanes: chosenLanes.map(({ name, compute, unmask = { kind: "low_confidence" } }, i) => ({
      id: `lane-${i + 1}`,
      name: String(name ?? "A lane").slice(0, 80),
      compute,
      unmask,
      settings: { gen_length, steps },
      events: [],
      parent: null,
    })),
  };
  return Object.assign(new Trace({ header, pieces }), { provisional: true });
}

function lanesIn(query) {
  try {
    const lanes = JSON.parse(query.get("lanes") ?? "null");
    const areLanes = Array.isArray(lanes) && lanes.length && lanes.every((lane) => lane?.compute?.kind);
    return areLanes ? lanes.slice(0, 4) : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
