// Rules that visitors typed: their texts, among the choices of lanes.

import { rulesOf } from "./described.js";

const typed = (compute) => rulesOf(compute).filter(({ kind }) => kind === "own");

/** The texts of all typed rules that some lanes have, or come to have. */
export const codesOf = (lanes) =>
  lanes
    .flatMap(({ compute, events = [] }) => [compute, ...events.map((event) => event.compute)])
    .flatMap((compute) => (compute ? typed(compute) : []))
    .map(({ code }) => code);

/** Takes the texts out of lanes without events, in their order; such lanes are changed. */
export function takeCodes(lanes) {
  const rules = lanes.flatMap(({ compute }) => (compute ? typed(compute) : []));
  return rules.map((rule) => {
    const { code } = rule;
    delete rule.code;
    return code;
  });
}

/** Puts texts back in the same order, as far as there are some. */
export function putCodes(lanes, codes) {
  const rules = lanes.flatMap(({ compute }) => (compute ? typed(compute) : []));
  for (const [i, rule] of rules.entries()) if (typeof codes[i] === "string") rule.code = codes[i];
}
