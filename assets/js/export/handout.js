// The printed page, a handout. It is part of the body while the page is printed, and hides everything else (print.css).

import { h } from "../dom.js";
import { leftOut } from "../run/address.js";
import { page } from "../run/state.js";
import { palette } from "../stage/theme.js";
import { verdict } from "../stage/verdict.js";
import { promptOf, prose } from "../trace/prose.js";
import { everything } from "../trace/results.js";
import { Field, WIDTH } from "./poster.js";

const MOMENT_HEIGHT = 380;
const SHARPNESS = 2; // pixels of the picture for one pixel of the poster

/** The steps, from 0, that the handout shows: after a third, two thirds and all of `count` steps. */
export function moments(count) {
  const thirds = [count / 3, (2 * count) / 3, count];
  return [...new Set(thirds.map((after) => Math.max(1, Math.round(after)) - 1))];
}

function moment(trace, colours, step) {
  const canvas = h("canvas", { width: WIDTH * SHARPNESS, height: MOMENT_HEIGHT * SHARPNESS });
  const pen = canvas.getContext("2d");
  pen.scale(SHARPNESS, SHARPNESS);
  const box = { x: 0, y: 0, width: WIDTH, height: MOMENT_HEIGHT };
  const steps = trace.lanes.map((lane) => lane.clamp(step));
  new Field(trace, colours, box, SHARPNESS).draw(pen, steps);
  return h("figure", h("figcaption", `After step ${step + 1} of ${trace.count}`), canvas);
}

function text(trace, lane) {
  const parts = prose(trace, lane, trace.count - 1);
  const words = parts.map(({ text: words, kind, filled }) => {
    const word = filled ? h("b", words) : words;
    return kind === "same" ? word : h("u", word);
  });
  return h("section", h("h2", lane.name), h("p", { dir: "auto" }, words));
}

/** Makes a table of everything about the lanes, side by side. Rows in which lanes differ are marked. */
function comparison(trace) {
  const { lanes } = trace;
  const columns = lanes.map((lane) => new Map(everything(trace, lane)));
  const names = [...new Set(columns.flatMap((column) => [...column.keys()]))];
  const rows = names.map((name) => {
    const values = columns.map((column) => column.get(name) ?? "–");
    const unequal = new Set(values).size > 1;
    const cells = values.map((value) => h("td", value));
    return h(unequal ? "tr.sl-unequal" : "tr", h("th", { scope: "row" }, name), cells);
  });
  const heads = ["", ...lanes.map(({ name }) => name)].map((name) => h("th", { scope: "col" }, name));
  return h("table", h("thead", h("tr", heads)), h("tbody", rows));
}

function handout(trace, colours, link) {
  const texts = trace.lanes.map((lane) => text(trace, lane));
  return h(
    "article.sl-handout",
    h("h1", "SureLock: decoders race"),
    h("p", trace.complete ? verdict(trace) : `Step ${trace.count} of ${trace.steps}: this run is not finished.`),
    h("p", h("b", "Prompt: "), promptOf(trace)),
    moments(trace.count).map((step) => moment(trace, colours, step)),
    h("p", "Orange is computed, hatched blue is locked and no longer computed; what differs is underlined."),
    h("div.sl-handout-texts", texts),
    comparison(trace),
    link ? h("p.sl-handout-link", h("a", { href: link }, link), ` ${leftOut(trace)}`.trimEnd()) : null,
  );
}

/**
 * Lets the page of a stage print a handout. link(trace, view): returns the address of the run on show, if it has one.
 */
export function printHandout(stage, link) {
  let node = null;
  let dark = false;
  const hide = () => {
    node?.remove();
    if (dark) document.body.classList.add("dark");
    [node, dark] = [null, false];
  };
  const show = () => {
    hide();
    const { root, view } = stage;
    const { trace } = page.now;
    if (!trace?.count) return;
    dark = document.body.classList.contains("dark");
    document.body.classList.remove("dark"); // paper is light
    node = handout(trace, palette(root), link?.(trace, view));
    document.body.append(node);
  };
  addEventListener("beforeprint", show);
  addEventListener("afterprint", hide);
}
