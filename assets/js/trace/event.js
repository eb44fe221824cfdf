// The shape of an event in a document and in a link. An event is something that a person does to a lane.

import { isCount, isObject, isText, listOf, mapOf } from "./damage.js";

const isPlain = (value) => value === null || ["number", "string", "boolean"].includes(typeof value);
/** The shape of a setting's value. */
export const isSetting = (value) => isPlain(value) || listOf(isPlain)(value) || mapOf(isPlain)(value);
const isRule = (value) => mapOf(isSetting)(value) && isText(value.kind) && value.kind !== "both";
const isPair = ({ kind, lock, select }) => kind === "both" && isRule(lock) && isRule(select);
const isChoice = (value) => isRule(value) || (isObject(value) && isPair(value));

/** The shape of a rule or a policy, or of a pair of rules, with its settings. */
export const CHOICE = [isChoice, "a rule with its settings"];

const POSITION = [isCount, "a position"];
/** The fields of an event, by its kind; see `check`. */
export const EVENTS = {
  lock: { position: POSITION },
  unlock: { position: POSITION },
  mask: { position: POSITION },
  write: { position: POSITION, token: [isCount, "a token id"] },
  rule: { compute: CHOICE },
};
/** The fields of every event; see `check`. */
export const EVENT = {
  step: [isCount, "a step"],
  kind: [(kind) => isText(kind) && Object.hasOwn(EVENTS, kind), `one of ${Object.keys(EVENTS).join(", ")}`],
};

/** Whether a value has the shape of an event. */
export function isEvent(value) {
  const has = (parts) => Object.entries(parts).every(([name, [shape]]) => shape(value[name]));
  return isObject(value) && has(EVENT) && has(EVENTS[value.kind]);
}
