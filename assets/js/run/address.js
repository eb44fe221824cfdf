// Reads and writes the three parts of an address: the settings of a run, the view of the run, and its touches
// (`story`). addressing.js uses this module. The parameter `step` counts from 1, as on the page; the steps in `touches`
// count from 0.

import { isEvent } from "../trace/event.js";
import { MOST_LANES } from "../trace/states.js";
import { digitsOfTokens, MOST_TOUCHES, touchesOf } from "../trace/touches.js";
import { putCodes, takeCodes } from "../trace/typed.js";
import { parsed } from "./tab.js";

/**
 * The most characters of a settings query in an address or link. A longer query is left out, since servers refuse long
 * addresses.
 */
const LONGEST = 7000;

const CODES = "rules";
const VIEW = ["step", "pins", "race", "colour"];
const STORY = ["touches", "weights", "tokens"]; // the touches of a lane, and hashes of weights and final tokens
const PAGE = ["present", "embed", "alone", "lesson", "page", "__theme"]; // parameters of the page, not of a run

const whole = (text) => (/^\d{1,6}$/.test(text ?? "") ? Number(text) : NaN);

/** The list in a JSON text, [] if it is no list. */
function listIn(text) {
  const list = parsed(text);
  return Array.isArray(list) ? list : [];
}

/** The code of rules that visitors wrote, in the fragment of an address. Servers do not see a fragment. */
export const codesIn = (hash) => listIn(new URLSearchParams(hash.slice(1)).get(CODES));

/** The lanes in a query, [] if they are damaged. */
function lanesIn(query) {
  const lanes = listIn(query.get("lanes"));
  return lanes.every((lane) => lane?.compute) ? lanes : [];
}

/**
 * [query, fragment] of a run's settings. The fragment has the code of rules that visitors wrote, and is "" if there is
 * no such rule.
 */
export function apart(settings) {
  const query = new URLSearchParams(settings);
  const lanes = lanesIn(query);
  const codes = takeCodes(lanes);
  if (!codes.length) return [settings, ""];
  query.set("lanes", JSON.stringify(lanes));
  return [query.toString(), `#${new URLSearchParams({ [CODES]: JSON.stringify(codes) })}`];
}

function together(settings, hash) {
  const query = new URLSearchParams(settings);
  const lanes = lanesIn(query);
  const codes = codesIn(hash);
  if (!codes.length || !lanes.length) return settings;
  putCodes(lanes, codes);
  query.set("lanes", JSON.stringify(lanes));
  return query.toString();
}

/**
 * The content of an address.
 * @typedef {object} Address
 * @property {string} settings the query of a run, "" if the address names no run
 * @property {{step?: number, pins?: number[], byClock?: boolean, colour?: string}} view the parts of the view that
 *   it names
 * @property {{touches: {lane: number, events: object[]} | null, weights: string, tokens: string}} story the touches of
 *   a lane, and hashes of the weights and of the final tokens, by which a receiver sees whether the run comes out the
 *   same; a hash has eight hexadecimal digits, or is ""
 * @property {string} problem a sentence, or ""
 */

/** The Address in a query and a fragment. */
export function readAddress(search, hash = "") {
  const query = new URLSearchParams(search);
  const view = {};
  const wrong = [];
  if (query.has("step")) {
    const step = whole(query.get("step"));
    if (step >= 1) view.step = step - 1;
    else wrong.push("step");
  }
  if (query.get("pins")) {
    const pins = query.get("pins").split(",").map(whole);
    view.pins = pins.filter(Number.isInteger);
    if (view.pins.length < pins.length) wrong.push("pins");
  }
  if (query.has("race")) {
    if (["clock", "steps"].includes(query.get("race"))) view.byClock = query.get("race") === "clock";
    else wrong.push("race");
  }
  if (query.has("colour")) view.colour = query.get("colour");
  const story = { touches: touchesIn(query), ...digitsIn(query) };
  if (query.has("touches") && !story.touches) wrong.push("touches");
  for (const name of [...VIEW, ...STORY, ...PAGE]) query.delete(name);
  const problem = wrong.length ? `The link is damaged at ${wrong.join(" and ")}; the rest of it holds.` : "";
  return { settings: together(query.toString(), hash), view, story, problem };
}

/** Whether settings, a query string, are short enough for an address once their code is moved to the fragment. */
export const hasRoom = (settings) => apart(settings)[0].length <= LONGEST;

/**
 * The query of an address: settings, story and view, and those parameters of `search` that belong to the page (PAGE).
 * Settings that are too long are left out, and the story with them.
 */
export function writeAddress(
  settings,
  { step = -1, pins = [], byClock = true, colour = "state" },
  search = "",
  story = {},
) {
  const query = new URLSearchParams(hasRoom(settings) ? apart(settings)[0] : "");
  for (const [name, value] of Object.entries(query.size ? story : {})) if (value) query.set(name, value);
  for (const [name, value] of new URLSearchParams(search)) if (PAGE.includes(name)) query.set(name, value);
  if (step >= 0) query.set("step", step + 1);
  if (pins.length) query.set("pins", pins.join(","));
  if (!byClock) query.set("race", "steps");
  if (colour !== "state") query.set("colour", colour);
  return query.toString();
}

function queryOf(model, prompt, chat, settings, lanes) {
  const query = new URLSearchParams({ model, prompt, ...(chat === false && { chat }) });
  for (const [name, value] of Object.entries(settings))
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  const laneChoices = lanes.map(({ name, compute, unmask }) => ({ name, compute, unmask }));
  if (laneChoices.length) query.set("lanes", JSON.stringify(laneChoices));
  return query.toString();
}

const byHand = ({ events }) => Boolean(events?.length);

/**
 * The story of a trace for the query of a link: the touches of a lane, with hashes of the weights and of the final
 * tokens, by which a receiver sees whether the run comes out the same. A hash has eight hexadecimal digits.
 */
export function storyOf(trace) {
  const now = touchesOf(trace);
  const race = trace.origin?.lanes ?? [];
  const original = race.findIndex(({ id }) => id === now?.original.id);
  const lane = Math.max(0, original, trace.touchedLane ?? 0);
  const touches = now && JSON.stringify({ lane, events: now.touches });
  return { touches, weights: trace.header.model.weights, tokens: digitsOfTokens(trace) };
}

/** The touches in a query, {lane, events}, null if there are none or if they cannot be read. */
function touchesIn(query) {
  const touches = parsed(query.get("touches") ?? "null");
  const { lane, events } = touches ?? {};
  const isLane = Number.isInteger(lane) && lane >= 0 && lane < MOST_LANES;
  if (!isLane || !Array.isArray(events)) return null;
  const isRight = events.length >= 1 && events.length <= MOST_TOUCHES && events.every(isEvent);
  return isRight ? { lane, events } : null;
}

const digitsOf = (text) => (/^[0-9a-f]{8}$/.test(text) ? text : "");
const digitsIn = (query) => ({ weights: digitsOf(query.get("weights")), tokens: digitsOf(query.get("tokens")) });

/**
 * The query that computes the run of a trace again: model, prompt, settings and lanes. Lanes with events are left
 * out.
 */
export function settingsOf(trace) {
  if (trace.settings) return trace.settings;
  if (trace.origin) return settingsOf(trace.origin);
  const { header: all, reference } = trace;
  const { model, prompt, chat, lanes, ...header } = all;
  const withoutEvents = lanes.filter((lane) => !byHand(lane));
  const { settings } = reference.decoder;
  const length = Math.max(1, settings.gen_length);
  // With blanks, null means one step per mask, and one block. The form shows null as the length, which trace/blanks.js
  // turns back into null.
  const follow = header.prompt_tokens.includes(header.mask_id) && { steps: length, block_length: length };
  const chosen = Object.entries(settings).filter(([, value]) => value !== null);
  const shown = { ...follow, ...Object.fromEntries(chosen) };
  return queryOf(model.name, prompt ?? "", chat, shown, withoutEvents);
}

/** A sentence about the parts of a trace that a link leaves out, or "". */
export function leftOut(trace) {
  if (touchesOf(trace)) return "";
  const names = trace.header.lanes.filter(byHand).map(({ name }) => `“${name}”`);
  return names.length ? `Events are not in this link, but in an exported trace: ${names.join(", ")}.` : "";
}

/**
 * The query of a run from the form's values: {model, prompt, lanes, chat, setting: value, ...}.
 * lanes: JSON text of an object whose field `lanes` is the lane list.
 */
export function settingsOfForm({ model, prompt, lanes, chat, ...settings }) {
  return queryOf(model, prompt, chat, settings, JSON.parse(lanes).lanes);
}

/** Whether two queries have the same parameters. */
export function sameSettings(a, b) {
  const [one, other] = [a, b].map((query) => new Map(new URLSearchParams(query)));
  return one.size === other.size && [...one].every(([name, value]) => other.get(name) === value);
}
