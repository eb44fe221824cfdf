// What the settings, rules and policies are called: the library's descriptions, which the page brings along.

const place = globalThis.document?.getElementById("sl-settings");
/**
 * {settings, compute: {kind: {label, sentence, settings, server}}, unmask: {kind: ...}}.
 * See surelock/decoding/described.py.
 */
export const described = place ? JSON.parse(place.textContent) : { settings: {}, compute: {}, unmask: {} };

// The kind that a rule from outside has in traces of version 4 leads to the rule, but is not listed.
for (const table of [described.compute, described.unmask]) {
  const byFormerKind = Object.values(table).map((description) => [description.was, description]);
  Object.setPrototypeOf(table, Object.fromEntries(byFormerKind));
}

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
  return [...rules, described.unmask[unmask?.kind]].find((description) => description?.server)?.label;
}

/** [[kind, description or {}, settings], ...] of a lane's choices, its policy last. */
function choices({ compute, unmask }) {
  const named = [
    ...rulesOf(compute).map((rule) => [rule, described.compute[rule.kind]]),
    [unmask, described.unmask[unmask.kind]],
  ];
  return named.map(([{ kind, ...settings }, description]) => [kind, description ?? {}, settings]);
}

/** [[name, value], ...] of all that a lane was asked to do: its rules, its policy, and every setting. */
export function facts(lane) {
  const all = choices(lane);
  const rows = all.flatMap(([kind, description, settings], i) => {
    const verb = i === all.length - 1 ? "Writes" : "Computes";
    const settingRows = Object.entries(settings).map(([name, value]) => {
      const setting = description.settings?.[name];
      return [setting?.label ?? name, valueText(value, setting)];
    });
    return [[verb, description.label ?? kind], ...settingRows];
  });
  for (const [name, value] of Object.entries(lane.settings))
    rows.push([described.settings[name]?.label ?? name, valueText(value, described.settings[name])]);
  for (const event of lane.events ?? []) rows.push([`At step ${event.step + 1}`, eventText(event)]);
  return rows;
}

/** A rule or policy with its settings: the one that it has as "Lock by age 12", of several what is not as described. */
function named([kind, { label = kind, settings: descriptions = {} }, settings]) {
  const values = Object.entries(settings).filter(([, value]) => typeof value === "number");
  if (values.length === 1) return `${label} ${number(values[0][1])}`;
  const others = Object.entries(settings).filter(
    ([name, value]) => descriptions[name]?.kind !== "code" && !sameValue(value, descriptions[name]?.default),
  );
  return [label, ...listed(Object.fromEntries(others), descriptions)].join(", ");
}

const sameValue = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

/** What a lane is called by its rules and its policy. The usual ones are left out. */
export function ruleName(lane) {
  const all = choices(lane);
  const [usual] = Object.keys(described.unmask);
  const unusual = all.filter(([kind]) => kind !== "everything" && kind !== usual);
  return (unusual.length ? unusual : all.slice(0, 1)).map(named).join(", ");
}

/** The name of a lane that was made of a preset: its rules or the preset's name, and the settings that differ. */
export function presetName(lane, preset) {
  const rules = choices(lane).slice(0, -1).map(named).join(", ");
  const namesPreset = rules.startsWith(`${preset.name} `);
  const name = namesPreset ? rules : preset.name;
  const compared = namesPreset ? { ...lane, compute: preset.compute } : lane; // the name has the rule's settings
  return [name, ...changed(compared, preset)].join(", ");
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
    .flatMap(([, description, settings]) => listed(settings, description.settings))
    .join(", ");
}

/** What a lane does, in a sentence or two; its policy only where it is not the reference's. */
export function sentence(lane, reference) {
  const rules = choices(lane);
  const [kind, description] = rules.pop();
  const parts = rules.map(([name, { sentence: words }]) => words ?? name);
  if (kind !== reference?.unmask.kind) parts.push(description.sentence ?? kind);
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
  const presetTexts = choices(preset).flatMap(([kind, description, settings]) => [
    kind,
    ...listed(settings, description.settings),
  ]);
  const before = new Set(presetTexts);
  const texts = choices(lane).flatMap(([kind, description, settings]) => {
    if (!before.has(kind)) return [description.label ?? kind];
    return listed(settings, description.settings);
  });
  return texts.filter((text) => !before.has(text));
}
