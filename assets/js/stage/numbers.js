// The numbers of the first screen: the work so far of every lane, the number of choices that leaving out rows has
// changed, and the number of tokens that differ from the reference (the grids underline these).

import { h, percent, setText } from "../dom.js";
import { page } from "../run/state.js";

const WORK =
  "Beside computing every token in as many steps; of several lanes, beside the one that they are compared with";
const CHANGED = "Choices that would have been another token, had their step computed every row";
const OTHERS = "Tokens that are not those of the lane that the others are compared with; the grids underline them";

/**
 * The work of the lanes so far, relative to the reference's work in as many steps: {share, bar} for every lane.
 * share: NaN before the first step. bar: the length of the bar from 0 to 1. All bars have one scale. If no lane does
 * more work than the reference, the length of a bar is the share.
 */
export function workSoFar(trace, step) {
  const shares = trace.lanes.map((lane) => {
    const now = trace.totals(lane, step);
    if (!now) return NaN;
    return lane === trace.reference && trace.lanes.length > 1 ? 1 : now.flopsShare;
  });
  const most = Math.max(1, ...shares.filter(Number.isFinite));
  return shares.map((share) => ({ share, bar: (Number.isFinite(share) ? share : 0) / most }));
}

/** The number of a lane's tokens at a step of the cursor that differ from the reference's tokens. */
export function otherTokens(trace, lane, step) {
  const { race, reference } = trace;
  const mine = lane.tokens(race.reached(lane, step));
  const theirs = reference.tokens(race.reached(reference, step));
  return mine.reduce((sum, token, cell) => sum + (token >= 0 && theirs[cell] >= 0 && token !== theirs[cell]), 0);
}

/** The reason in a word or two why the number of changed choices is unknown. */
export function uncompared({ race, complete }) {
  if (!race.live) return "unknown";
  return complete ? "comparing" : "at the end";
}

/** Makes a node for every lane's number. If there are several numbers, they have their lanes' colours and names. */
function parts(node, trace) {
  const values = trace.others.map(() => h("span", "–"));
  const labelled = (lane, i) => {
    const name = h("span.sl-hidden", `${lane.name}: `);
    return h(`span.sl-number-lane.sl-lane-${trace.colourOf(lane) + 1}`, { title: lane.name }, name, values[i]);
  };
  const nodes = trace.others.length > 1 ? trace.others.map(labelled) : values;
  node.replaceChildren(...nodes);
  return values;
}

/** The row of numbers. */
export class Numbers {
  rows = [];

  constructor() {
    this.bars = h("div.sl-work-bars");
    this.changed = h("strong.sl-number", "–");
    this.of = h("span.sl-number-of");
    this.others = h("strong.sl-number", "–");
    const wide = (text) => h("span.sl-desk-only", text);
    const work = h("div.sl-work", { title: WORK }, h("span", "Work ", wide("so far")), this.bars);
    const changed = h(
      "p.sl-changed",
      { title: CHANGED },
      "Choices changed ",
      wide("by skipping "),
      this.changed,
      this.of,
    );
    this.differ = h("p.sl-others", { title: OTHERS }, "Underlined ", wide("differences "), this.others);
    this.counts = h("div.sl-counts", changed, this.differ);
    this.node = h("section.sl-numbers", { "aria-label": "Numbers" }, work, this.counts);
    page.follow(["laid"], ({ trace }) => trace && this.#load(trace));
  }

  #load(trace) {
    this.rows = trace.lanes.map((lane) => {
      const bar = h("span.sl-work-bar");
      const share = h("span.sl-work-share", "–");
      const name = h("span.sl-work-name", lane.name);
      const track = h("span.sl-work-track", { "aria-hidden": "true" }, bar);
      const colour = trace.colourOf(lane) + 1;
      const node = h(`div.sl-work-row.sl-lane-${colour}`, { title: lane.name }, name, track, share);
      return { node, bar, share };
    });
    this.bars.replaceChildren(...this.rows.map(({ node }) => node));
    this.changes = parts(this.changed, trace);
    this.differences = parts(this.others, trace);
    this.differ.hidden = trace.lanes.length < 2;
  }

  draw(trace, step) {
    const work = workSoFar(trace, step);
    this.rows.forEach(({ bar, share }, i) => {
      bar.style.transform = `scaleX(${Math.min(1, work[i].bar).toFixed(4)})`;
      setText(share, percent(work[i].share));
    });
    const others = trace.others.map((lane) => trace.totals(lane, step));
    others.forEach((now, i) => {
      setText(this.changes[i], now?.damage ? String(now.damage.changed) : "–");
      setText(this.differences[i], String(otherTokens(trace, trace.others[i], step)));
    });
    const [one] = others;
    const compared = others.every((now) => !now || now.damage);
    if (!compared) setText(this.of, ` ${uncompared(trace)}`);
    else setText(this.of, others.length === 1 && one?.damage ? ` of ${one.damage.commits}` : "");
  }
}
