// The names and descriptions of settings, rules and policies. The library writes them into the page.

const place = globalThis.document?.getElementById("sl-settings");
/**
 * The library's descriptions: {settings, compute: {kind: {label, sentence, settings, server}}, unmask: {kind: ...}}.
 * See surelock/decoding/described.py.
 */
export const described = place ? JSON.parse(place.textContent) : { settings: {}, compute: {}, unmask: {} };

// Older traces name a rule from outside by another kind (`was`). That kind can be looked up, but is not listed.
for (const table of [described.compute, described.unmask]) {
  const byFormerKind = Object.values(table).map((description) => [description.was, description]);
  Object.setPrototypeOf(table, Object.fromEntries(byFormerKind));
}

/** A number as the page writes it: 0.5, 5e-4, 1e-8. */
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

/** The list of rules in a compute choice: the rule itself, or both rules of a pair. */
export const rulesOf = (compute) => (compute.kind === "both" ? [compute.lock, compute.select] : [compute]);

/** The name of a rule or policy of a lane that only a server can run, events included; undefined if there is none. */
export function serverChoice({ compute, unmask, events = [] }) {
  const computes = [compute, ...events.map((event) => event.compute)].filter(Boolean);
  const rules = computes.flatMap(rulesOf).map((rule) => described.compute[rule?.kind]); // a damaged pair lacks a rule
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

/** [[name, value], ...]: a lane's rules, policy, settings and events, as rows of a table. */
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

/**
 * A rule or policy with its settings, such as "Lock by age 12". If it has several settings, only changed ones are
 * named.
 */
function named([kind, { label = kind, settings: descriptions = {} }, settings]) {
  const values = Object.entries(settings).filter(([, value]) => typeof value === "number");
  if (values.length === 1) return `${label} ${number(values[0][1])}`;
  const others = Object.entries(settings).filter(
    ([name, value]) => descriptions[name]?.kind !== "code" && !sameValue(value, descriptions[name]?.default),
  );
  return [label, ...listed(Object.fromEntries(others), descriptions)].join(", ");
}

const sameValue = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);

/** The name of a lane by its rules and its policy. The default rule and policy are left out. */
export function ruleName(lane) {
  const all = choices(lane);
  const [usual] = Object.keys(described.unmask);
  const unusual = all.filter(([kind]) => kind !== "everything" && kind !== usual);
  return (unusual.length ? unusual : all.slice(0, 1)).map(named).join(", ");
}

/** The name of a lane made from a preset: its rules or the preset's name, and the settings that differ. */
export function presetName(lane, preset) {
  const rules = choices(lane).slice(0, -1).map(named).join(", ");
  const namesPreset = rules.startsWith(`${preset.name} `);
  const name = namesPreset ? rules : preset.name;
  const compared = namesPreset ? { ...lane, compute: preset.compute } : lane; // the name has the rule's settings
  return [name, ...changed(compared, preset)].join(", ");
}

/** A name without the number at its end that distinguishes it from equal names. */
export const unnumbered = (name) => name.replace(/( \(\d+\))+$/, "");

/** The names, with numbers added so that no two are equal. */
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

/** One or two sentences about a lane's rules. The policy is described only if the reference has another policy. */
export function sentence(lane, reference) {
  const rules = choices(lane);
  const [kind, description] = rules.pop();
  const parts = rules.map(([name, { sentence: words }]) => words ?? name);
  if (kind !== reference?.unmask.kind) parts.push(description.sentence ?? kind);
  return parts.join(" ");
}

const VERBS = { lock: "locked", unlock: "unlocked", write: "written", mask: "masked again" };

/** An event in words: "position 34 locked", "“cat” at position 34". word: the written word if it is known. */
export function eventText({ kind, position, compute }, word = "") {
  if (word && kind === "write") return `“${word}” at position ${position}`;
  if (kind === "rule")
    return rulesOf(compute)
      .map((rule) => described.compute[rule.kind]?.label ?? rule.kind)
      .join(", ");
  return `position ${position} ${VERBS[kind]}`;
}

/** The settings of a lane's choices that differ from a preset, as texts such as "ε 5e-3". */
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
