// Finds the texts (codes) of rules that visitors typed in the choices of lanes.

import { rulesOf } from "./described.js";

/** All typed rules of some lanes, those of their events included. */
const rulesIn = (lanes) =>
  lanes
    .flatMap(({ compute, events = [] }) => [compute, ...events.map((event) => event.compute)])
    .flatMap((compute) => (compute ? rulesOf(compute) : []))
    .filter(({ kind }) => kind === "own");

/** The texts of all typed rules of some lanes. */
export const codesOf = (lanes) => rulesIn(lanes).map(({ code }) => code);

/** Removes the texts of typed rules from the lanes, and returns them. */
export const takeCodes = (lanes) =>
  rulesIn(lanes).map((rule) => {
    const { code } = rule;
    delete rule.code;
    return code;
  });

/** Puts texts back into the lanes' typed rules, in the same order. */
export function putCodes(lanes, codes) {
  for (const [i, rule] of rulesIn(lanes).entries()) if (typeof codes[i] === "string") rule.code = codes[i];
}
