import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";
import { answer, laneOf, named, shownParts, stepOf } from "../../assets/js/lessons/answers.js";
import { PIN_COLOURS } from "../../assets/js/stage/theme.js";
import { chapters } from "../../assets/js/trace/chapters.js";
import { ACTIVE, isMasked, LOCKED } from "../../assets/js/trace/states.js";
import { Trace } from "../../assets/js/trace/trace.js";

const assets = new URL("../../assets/", import.meta.url);
const text = (path) => readFileSync(new URL(path, assets), "utf-8");
const read = (path) => JSON.parse(text(path));
const css = ["base", "gauges", "lessons"].map((name) => text(`css/${name}.css`)).join("\n");
const side = text("js/stage/side.js");
const lessons = readdirSync(new URL("lessons/", assets))
  .filter((each) => /^\d/.test(each))
  .map((file) => read(`lessons/${file}`));

/** "#rrggbb" as [hue in degrees, saturation, lightness]. */
function hsl(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
  const [high, low] = [Math.max(r, g, b), Math.min(r, g, b)];
  const by = high - low;
  const turn = { [b]: (r - g) / by + 4, [g]: (b - r) / by + 2, [r]: ((g - b) / by + 6) % 6 }[high];
  return [60 * turn, by / (1 - Math.abs(high + low - 1)), (high + low) / 2];
}

const themes = [...css.matchAll(/^(?:\.dark )?\.sl-stage \{([^}]*)\}/gm)].slice(0, 2).map(([, body]) => body);
/** Whether a name of the palette is drawn in a hue in both themes. */
const drawn = (name, [low, high]) =>
  themes.length === 2 &&
  themes.every((body) => {
    const [hue, saturation] = hsl(body.match(new RegExp(`--sl-${name}: (#\\w{6})`))[1]);
    return saturation > 0.25 && hue >= low && hue <= high;
  });
const [ORANGE, BLUE] = [
  [25, 45],
  [200, 220],
];

const own = ({ promptLength, n }) => Array.from({ length: n - promptLength }, (_, i) => promptLength + i);
const masked = (trace, lane, step) => own(trace).filter((p) => isMasked(lane.row(step)[p]));
const stands = (order) => side.replace(/\s+/g, " ").includes(order);

/** What lessons say of colours, places and states, and whether it is drawn: by a part of the sentence. */
const SAID = {
  "begins with a row of blanks, called masked": ({ trace }) =>
    trace.lanes.every((lane) => masked(trace, lane, -1).length === own(trace).length),
  "The framed cells are the prompt.": () =>
    css.includes(".sl-swatch-prompt { background: transparent; border: 2px solid"),
  "masked before the first step, which is shown here": ({ step }) => step === 0,
  "Some words stand, most are still masked.": ({ trace, step }) => {
    const { length } = masked(trace, trace.reference, step);
    return length > own(trace).length / 2 && length < own(trace).length;
  },
  "masked positions that will be filled in next": ({ trace, step, page }) =>
    trace.reference.decoder.compute.kind === "everything" &&
    answer(trace, page.question.answer).every((p) => masked(trace, trace.reference, step).includes(p)),
  "The three are pinned now: step on": ({ trace, step, before }) =>
    answer(trace, before).length === 3 &&
    answer(trace, before).every((p) => masked(trace, trace.reference, step).includes(p)),
  "The orange area under “{reference}” shows the rows of the prompt and of all words that stand": ({ trace }) =>
    drawn("raster-active", ORANGE) &&
    stands("this.box, this.foot") &&
    trace.reference.state.every((state) => isMasked(state) || state === ACTIVE),
  "The curves show, step by step, the middle one": ({ trace }) =>
    text("js/cause/curves.js").includes("median") && trace.lanes.every(({ steps }) => steps.at(-1).median >= 0),
  "Such a position is called locked. It is drawn in blue.": () =>
    ["locked", "locked-hatch", "raster-locked"].every((name) => drawn(name, BLUE)),
  "A few words stand, and many are to come.": ({ trace, step }) => {
    const { length } = masked(trace, laneOf(trace, "subject"), step);
    return length < own(trace).length && length > 0.9 * own(trace).length;
  },
  "Pin the five positions after the prompt that will lock first": ({ trace, step }) =>
    trace.lanes.every((lane) => own(trace).every((p) => lane.row(step)[p] !== LOCKED)),
  "The ones that locked first are pinned now.": ({ trace, step, before }) => {
    const pins = answer(trace, before);
    return pins.length <= PIN_COLOURS && pins.every((p) => laneOf(trace, "subject").row(step)[p] === LOCKED);
  },
  "It is high while the position is masked": ({ trace, page }) => {
    const { kl, epsilon, n, ...lane } = laneOf(trace, "subject");
    return answer(trace, page.pins).every((p) => {
      const at = laneOf(trace, "subject").lockStep(p, lane.count - 1);
      return (
        kl[at * n + p] <= laneOf(trace, "subject").epsilon && kl[n + p] > kl[at * n + p] && !(kl[(at + 1) * n + p] >= 0)
      );
    });
  },
  "has a curve of its own in the plot of KL": ({ trace, page }) => answer(trace, page.pins).length <= PIN_COLOURS,
  "The mark “Slowest to lock” on the player": ({ trace }) =>
    chapters(trace).some(({ name }) => name === "Slowest to lock"),
  "Four lanes continue the same opening.": ({ trace }) => trace.lanes.length === 4,
  "their ε is a hundred times as large": ({ trace }) => {
    const [seen, letter] = ["seen", "letter"].map((id) => trace.lane(id).decoder.compute);
    const { epsilon } = trace.lane("surelock");
    return [seen, letter].every((rule) => rule.epsilon === 100 * epsilon && rule.percentile === 100);
  },
  "gives it that one step. “Loose, locks at once” does not": ({ trace }) =>
    ["seen", "letter"].every((id, i) => trace.lane(id).decoder.compute.visible_steps === 1 - i) &&
    trace.lane("letter").name === "Loose, locks at once",
  "Each lane runs by its own clock here.": ({ page }) => page.by_clock,
  "The clock of each lane stands beside its name.": ({ page }) =>
    page.by_clock && stands("name, this.clock.node), this.box,"),
  "it locks a word twelve steps after it was written": ({ trace }) => {
    const lane = trace.lane("age");
    const last = lane.count - 1;
    const locked = own(trace).filter((p) => lane.lockStep(p, last) >= 0);
    return locked.length && locked.every((p) => lane.lockStep(p, last) - lane.unmaskStep(p, last) === 12);
  },
  "“Taking turns” locks nothing, and computes the two thirds": ({ trace }) => {
    const { name, steps, decoder } = trace.lane("own");
    const share = Math.abs(decoder.compute.fraction - 2 / 3);
    return name === "Taking turns" && share < 0.05 && steps.every(({ lockedCount }) => !lockedCount);
  },
  "about two thirds of the work": ({ trace }) =>
    trace.lanes.slice(1).every((lane) => Math.abs(trace.totals(lane, trace.race.last).everyShare - 2 / 3) < 0.08),
};

/** Words that speak of a part of the stage, and the parts of which one must be shown. */
const PARTS = [
  [/\b(grids?|masked|framed|pin|pinned|blanks?)\b/i, ["grids", "rasters", "curves", "texts"]],
  [/\b(pin the|framed)\b/i, ["grids"]],
  [/\b(orange|blue) area\b|drawn in blue/i, ["rasters"]],
  [/\b(curves?|plot)\b/i, ["curves"]],
  [/\b(player|press play)\b/i, ["timeline"]],
  [/\btexts\b/i, ["texts"]],
  [/\bgauges\b/i, ["gauges"]],
  [/\bclock\b/i, ["grids", "rasters"]],
];

test("a page shows the parts and the lanes that it speaks of", () => {
  for (const { name, run, pages } of lessons) {
    const trace = Trace.parse(read(`runs/${run.recorded}.json`));
    for (const { kind, text, shows, question } of pages) {
      const words = named([text, question?.ask ?? ""].join(" "), trace);
      const shown = shownParts(trace, shows);
      for (const [said, parts] of kind === "why" ? [] : PARTS)
        if (said.test(words))
          assert.ok(
            parts.some((part) => shown.includes(part)),
            `${name}: “${words}” (${shown})`,
          );
      trace.lanes.forEach((lane, i) => {
        const spoken = words.includes(`“${lane.name}”`) || question?.answer.lane === lane.id;
        if (spoken) assert.ok(shown.includes(`lane-${i + 1}`), `${name}: ${lane.name} in “${words}” (${shown})`);
      });
    }
  }
});

/** Words that speak of what is drawn: a sentence with one of them must be among SAID. */
const SPEAKS =
  /\b(dark|light|pale|orange|blue|gr[ae]y|white|black|red|green|yellow|framed|masked|pinned|pin|mark|plot|curves?|clock|grids?|under|over its|line)\b/i;

test("what the lessons say of colours, places and states is what is drawn on their pages", () => {
  const held = new Set();
  for (const { name, run, pages } of lessons) {
    const trace = Trace.parse(read(`runs/${run.recorded}.json`));
    let [at, before] = [undefined, undefined];
    for (const page of pages) {
      at = page.at ?? at;
      trace.race.byClock = page.by_clock ?? false;
      const step = at === undefined ? trace.race.last : stepOf(at, trace.race.last + 1);
      const words = [page.text, page.question?.ask ?? ""].join(" ").trim();
      const found = Object.keys(SAID).filter((part) => words.includes(part));
      for (const part of found) assert.ok(SAID[part]({ trace, step, page, before }), `${name}: ${part}`);
      for (const part of found) held.add(part);
      for (const sentence of words.split(/(?<=[.?!])\s+/))
        if (SPEAKS.test(sentence))
          assert.ok(
            found.some((part) => part.includes(sentence) || sentence.includes(part.split(/\. /)[0])),
            `${name}: nothing holds “${sentence}”`,
          );
      for (const part of page.shows.filter((each) => !each.startsWith("lane:")))
        assert.ok(css.includes(`[data-shows~="${part}"]`), `${name}: ${part}`);
      before = page.question?.answer ?? before;
    }
  }
  assert.deepEqual(
    Object.keys(SAID).filter((part) => !held.has(part)),
    [],
  );
});

test("a lane that a lesson points at has the name that it has on this run", () => {
  const trace = Trace.parse(read("runs/stories.json"));
  trace.lanes[0].name = "All $& of it";
  assert.equal(named("under “{reference}”, for “{subject}”", trace), "under “All $& of it”, for “SureLock”");
});
