// What the settings, rules and policies are called: the library's own descriptions, which the page brings along.

const place = globalThis.document?.getElementById("sl-settings");
/** {settings, compute: {kind: {label, sentence, settings}}, unmask: {kind: ...}}, as surelock/decoding/described.py says. */
export const described = place ? JSON.parse(place.textContent) : { settings: {}, compute: {}, unmask: {} };

/** A number as it is written everywhere: 0.5, 5e-4, 1e-8. */
export function number(x) {
  if (x === "inf" || x === Infinity) return "∞";
  if (typeof x !== "number") return String(x);
  return x !== 0 && Math.abs(x) < 0.01 ? x.toExponential() : String(x);
}

/** A setting's value in words; `setting` is its description, if there is one. */
export function valueText(value, setting = {}) {
  if (value === null || value === undefined) return setting.none ?? "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (setting.log && setting.label === "ε" && value < 0) return "never";
  if (typeof value === "object") return listed(value, setting.settings).join(", ");
  return number(value);
}

const listed = (values, settings = {}) =>
  Object.entries(values).map(([name, value]) => `${settings[name]?.label ?? name} ${valueText(value, settings[name])}`);

/** The rules in a compute choice: one, or the two of a pair. */
const rulesOf = (compute) => (compute.kind === "both" ? [compute.lock, compute.select] : [compute]);

/** [[kind, description or {}, settings], ...] of a contestant's choices, its policy last. */
function choices({ compute, unmask }) {
  const named = [
    ...rulesOf(compute).map((rule) => [rule, described.compute[rule.kind]]),
    [unmask, described.unmask[unmask.kind]],
  ];
  return named.map(([{ kind, ...settings }, told]) => [kind, told ?? {}, settings]);
}

/** [[name, value], ...] of a contestant's rules, its policy and the settings of these. */
export function choiceFacts(contestant) {
  const all = choices(contestant);
  return all.flatMap(([kind, told, settings], i) => [
    [i === all.length - 1 ? "Writes" : "Computes", told.label ?? kind],
    ...Object.entries(settings).map(([name, value]) => [
      told.settings?.[name]?.label ?? name,
      valueText(value, told.settings?.[name]),
    ]),
  ]);
}

/** [[name, value], ...] of all that a contestant was asked to do: its rule, its policy, and every setting. */
export function facts(contestant) {
  const rows = choiceFacts(contestant);
  for (const [name, value] of Object.entries(contestant.settings))
    rows.push([described.settings[name]?.label ?? name, valueText(value, described.settings[name])]);
  for (const event of contestant.events ?? []) rows.push([`At step ${event.step + 1}`, eventText(event)]);
  return rows;
}

/** The settings of a contestant's choices in a line: "ε 5e-4, Percentile m 20". */
export function choiceText(contestant) {
  return choices(contestant)
    .flatMap(([, told, settings]) => listed(settings, told.settings))
    .join(", ");
}

/** What a contestant does, in a sentence or two; its policy only where it is not the reference's. */
export function sentence(contestant, reference) {
  const rules = choices(contestant);
  const [kind, told] = rules.pop();
  const parts = rules.map(([name, { sentence: words }]) => words ?? name);
  if (kind !== reference?.unmask.kind) parts.push(told.sentence ?? kind);
  return parts.join(" ");
}

const VERBS = { lock: "locked", unlock: "unlocked", write: "written", mask: "masked again" };

/** What an event did: "position 34 locked". */
export function eventText({ kind, position, compute }) {
  if (kind === "rule")
    return rulesOf(compute)
      .map((rule) => described.compute[rule.kind]?.label ?? rule.kind)
      .join(", ");
  return `position ${position} ${VERBS[kind]}`;
}

/** Settings of a choice that are not a preset's, as "ε 5e-3". */
export function changed(lane, preset) {
  const before = new Set(
    choices(preset).flatMap(([kind, told, settings]) => [kind, ...listed(settings, told.settings)]),
  );
  return choices(lane)
    .flatMap(([kind, told, settings]) => (before.has(kind) ? listed(settings, told.settings) : [told.label ?? kind]))
    .filter((text) => !before.has(text));
}

/** What judges said of a lane's text, [[name, value], ...]. */
export const judgements = ({ judged }) =>
  Object.entries(judged).map(([judge, { bits_per_character: bits }]) => [
    `Bits per character by ${judge}`,
    bits === null ? "–" : bits.toFixed(3),
  ]);
