// What the settings, rules and policies are called: the library's own descriptions, which the page brings along.

const place = globalThis.document?.getElementById("sl-settings");
/** {settings, compute: {kind: {label, sentence, settings, server}}, unmask: {kind: ...}}, as surelock/decoding/described.py says. */
export const described = place ? JSON.parse(place.textContent) : { settings: {}, compute: {}, unmask: {} };

// A rule from outside is found, but not listed, by the kind that it has in traces of version 4.
for (const table of [described.compute, described.unmask])
  Object.setPrototypeOf(table, Object.fromEntries(Object.values(table).map((told) => [told.was, told])));

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
  if (setting.kind === "code") return `${value.trim().split("\n").length} lines`;
  if (setting.log && setting.label === "ε" && value < 0) return "never";
  if (typeof value === "object") return listed(value, setting.settings).join(", ");
  return number(value);
}

const listed = (values, settings = {}) =>
  Object.entries(values).map(([name, value]) => `${settings[name]?.label ?? name} ${valueText(value, settings[name])}`);

/** The rules in a compute choice: one, or the two of a pair. */
export const rulesOf = (compute) => (compute.kind === "both" ? [compute.lock, compute.select] : [compute]);

/** What a rule or a policy is called that no browser has, among all that a lane has or comes to have; undefined if none. */
export function serverChoice({ compute, unmask, events = [] }) {
  const computes = [compute, ...events.map((event) => event.compute)].filter(Boolean);
  const rules = computes.flatMap(rulesOf).map((rule) => described.compute[rule?.kind]); // a damaged pair lacks one
  return [...rules, described.unmask[unmask?.kind]].find((told) => told?.server)?.label;
}

/** [[kind, description or {}, settings], ...] of a lane's choices, its policy last. */
function choices({ compute, unmask }) {
  const named = [
    ...rulesOf(compute).map((rule) => [rule, described.compute[rule.kind]]),
    [unmask, described.unmask[unmask.kind]],
  ];
  return named.map(([{ kind, ...settings }, told]) => [kind, told ?? {}, settings]);
}

/** [[name, value], ...] of all that a lane was asked to do: its rules, its policy, and every setting. */
export function facts(lane) {
  const all = choices(lane);
  const rows = all.flatMap(([kind, told, settings], i) => [
    [i === all.length - 1 ? "Writes" : "Computes", told.label ?? kind],
    ...Object.entries(settings).map(([name, value]) => [
      told.settings?.[name]?.label ?? name,
      valueText(value, told.settings?.[name]),
    ]),
  ]);
  for (const [name, value] of Object.entries(lane.settings))
    rows.push([described.settings[name]?.label ?? name, valueText(value, described.settings[name])]);
  for (const event of lane.events ?? []) rows.push([`At step ${event.step + 1}`, eventText(event)]);
  return rows;
}

/** A rule or policy with its settings: the one that it has as "Lock by age 12", of several what is not as described. */
function named([kind, { label = kind, settings: told = {} }, settings]) {
  const values = Object.entries(settings).filter(([, value]) => typeof value === "number");
  if (values.length === 1) return `${label} ${number(values[0][1])}`;
  const others = Object.entries(settings).filter(
    ([name, value]) => told[name]?.kind !== "code" && !sameValue(value, told[name]?.default),
  );
  return [label, ...listed(Object.fromEntries(others), told)].join(", ");
}

const sameValue = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

/** What a lane is called by its rules and its policy, the usual ones left out */
export function ruleName(lane) {
  const all = choices(lane);
  const [usual] = Object.keys(described.unmask);
  const told = all.filter(([kind]) => kind !== "everything" && kind !== usual);
  return (told.length ? told : all.slice(0, 1)).map(named).join(", ");
}

/** What a lane is called that was made of a preset: by its rule where that is the preset's name, else what differs is told. */
export function presetName(lane, preset) {
  const rules = choices(lane).slice(0, -1).map(named).join(", ");
  const told = rules.startsWith(`${preset.name} `);
  const others = changed(told ? { ...lane, compute: preset.compute } : lane, preset);
  return [told ? rules : preset.name, ...others].join(", ");
}

/** A name without the number that tells it apart. */
export const unnumbered = (name) => name.replace(/( \(\d+\))+$/, "");

/** Names of which no two are the same. */
export function namesApart(names) {
  const taken = new Set();
  return names.map((name) => {
    const plain = unnumbered(name);
    let unique = name;
    for (let times = 2; taken.has(unique); times++) unique = `${plain.slice(0, 74)} (${times})`;
    taken.add(unique);
    return unique;
  });
}

/** The settings of a lane's choices in a line: "ε 5e-4, Percentile m 20". */
export function choiceText(lane) {
  return choices(lane)
    .flatMap(([, told, settings]) => listed(settings, told.settings))
    .join(", ");
}

/** What a lane does, in a sentence or two; its policy only where it is not the reference's. */
export function sentence(lane, reference) {
  const rules = choices(lane);
  const [kind, told] = rules.pop();
  const parts = rules.map(([name, { sentence: words }]) => words ?? name);
  if (kind !== reference?.unmask.kind) parts.push(told.sentence ?? kind);
  return parts.join(" ");
}

const VERBS = { lock: "locked", unlock: "unlocked", write: "written", mask: "masked again" };

/** What an event did: "position 34 locked", "“cat” at position 34". word: what is written, where that is known. */
export function eventText({ kind, position, compute }, word = "") {
  if (word && kind === "write") return `“${word}” at position ${position}`;
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
