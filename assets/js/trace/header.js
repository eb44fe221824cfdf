// Checks the parts of a document other than its records, as surelock/trace/schema.json describes them.

import {
  check,
  damaged,
  having,
  isCount,
  isObject,
  isText,
  listOf,
  mapOf,
  maybe,
  nullable,
  orAbsent,
} from "./damage.js";
import { CHOICE, EVENT, EVENTS, isSetting } from "./event.js";
import { MOST_LANES } from "./states.js";

const MOST = 8192; // the most positions and the most steps

const isName = (value) => isText(value) && value.length >= 1 && [...value].length <= 80;
const isSize = (value) => Number.isInteger(value) && value >= 1 && value <= MOST;
const isByte = (value) => isCount(value) && value < 256;

const NAME = [isName, "a text of 1 to 80 characters"];
const SIZE = [isSize, `a whole number from 1 to ${MOST}`];

const DOCUMENT = {
  header: [isObject, "an object"],
  pieces: [mapOf((piece) => isText(piece) || listOf(isByte)(piece)), "texts, or lists of bytes"],
  records: [Array.isArray, "a list"],
};
const HEADER = {
  model: [having({ name: isText }), "an object with a name"],
  prompt: nullable([isText, "a text"]),
  prompt_tokens: [listOf(isCount), "a list of token ids"],
  lists: maybe([listOf(having({ at: isCount, words: listOf(listOf(isCount)) })), "blanks and their words"]),
  mask_id: [isCount, "a token id"],
  eos_id: nullable([Number.isInteger, "a token id"]),
  ends: maybe([listOf(isCount), "token ids"]),
  stop: maybe([isText, "a text"]),
  length: SIZE,
  steps: SIZE,
  engine: maybe(NAME),
  lanes: [
    (value) => Array.isArray(value) && value.length >= 1 && value.length <= MOST_LANES,
    `1 to ${MOST_LANES} lanes`,
  ],
  reference: maybe(NAME),
  timed_together: maybe([listOf(having({ lanes: listOf(isName), machine: orAbsent(isName) })), "groups of lanes"]),
  created: maybe([isText, "a date"]),
};
const LANE = {
  id: NAME,
  name: NAME,
  compute: CHOICE,
  unmask: CHOICE,
  settings: [mapOf(isSetting), "settings by their names"],
  events: maybe([Array.isArray, "a list"]),
  parent: nullable([isText, "a lane's id"]),
  engine: maybe(NAME),
};
const LENGTHS = {
  gen_length: nullable([(value) => value === 0 || isSize(value), `a whole number from 0 to ${MOST}`]),
  steps: nullable(SIZE),
};
const VIEW = {
  step: [(step) => step === -1 || isCount(step), "a step"],
  pins: [listOf(isCount), "a list of positions"],
  by_clock: [(value) => typeof value === "boolean", "true or false"],
};

function checkLane(lane, i) {
  const whose = `lane ${i + 1}`;
  check(lane, LANE, whose);
  check(lane.settings, LENGTHS, `the settings of ${whose}`);
  for (const event of lane.events ?? []) {
    check(event, EVENT, `an event of ${whose}`);
    check(event, EVENTS[event.kind], `an event of ${whose}`);
  }
}

/** Throws TraceError unless all parts of a document other than its records can be read. */
export function checkDocument(document) {
  check(document, DOCUMENT, "the file");
  const { header, view } = document;
  check(header, HEADER, "its header");
  header.lanes.forEach(checkLane);
  if (view !== undefined) check(view, VIEW, "its view");
  const ids = header.lanes.map(({ id }) => id);
  if (new Set(ids).size < ids.length) throw damaged("two lanes have the same id");
  const timed = (header.timed_together ?? []).flatMap(({ lanes }) => lanes);
  if (new Set(timed).size < timed.length) throw damaged("a lane stands in two of its timing groups");
  const named = [header.reference, ...header.lanes.map(({ parent }) => parent), ...timed];
  if (named.some((id) => id && !ids.includes(id))) throw damaged("it speaks of a lane that is not there");
  if (header.prompt_tokens.length > header.length) throw damaged("its prompt is longer than its sequence");
}
