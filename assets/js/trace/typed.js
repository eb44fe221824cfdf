// Rules that visitors typed: their texts, among the choices of lanes.

import { rulesOf } from "./described.js";

/** All typed rules that some lanes have, or come to have. */
const rulesIn = (lanes) =>
  lanes
    .flatMap(({ compute, events = [] }) => [compute, ...events.map((event) => event.compute)])
    .flatMap((compute) => (compute ? rulesOf(compute) : []))
    .filter(({ kind }) => kind === "own");

export const codesOf = (lanes) => rulesIn(lanes).map(({ code }) => code);

/** Takes the texts out of the lanes, which are changed. */
export const takeCodes = (lanes) =>
  rulesIn(lanes).map((rule) => {
    const { code } = rule;
    delete rule.code;
    return code;
  });

/** Puts texts back in the same order, as far as there are some. */
export function putCodes(lanes, codes) {
  for (const [i, rule] of rulesIn(lanes).entries()) if (typeof codes[i] === "string") rule.code = codes[i];
}
