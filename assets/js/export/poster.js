// The poster: a race as one picture on a canvas, with names, clocks, grids and a sentence. The video, the picture of
// the end and the handout are made of posters. Lengths are pixels of a picture 1280 pixels wide; `scale` enlarges it.

import { count, percent, seconds } from "../dom.js";
import { Grid } from "../stage/grid.js";
import { labelsOf } from "../stage/labels.js";
import { layout } from "../stage/layout.js";
import { happens, narrate, stillWorking } from "../stage/narrator.js";
import { cut, fillBox, type } from "../stage/pens.js";
import { verdict } from "../stage/verdict.js";
import { textOf } from "../trace/prose.js";
import { ACTIVE, LOCKED, MASKED, RESTING, STATES } from "../trace/states.js";

export const WIDTH = 1280;
export const HEIGHT = 720;
const MARGIN = 28;
const GAP = 24;
const HEAD = 66; // above a grid: name, clock, numbers, a bar
const TEXT = 118; // below a grid, where the texts are shown
const SHOWN = [MASKED, ACTIVE, RESTING, LOCKED];
const SAMPLE_WIDTH = 27; // the width of a cell of the legend, with the gap to the next cell
const SAMPLE_HEIGHT = 20;

/** The seconds of a race, 1 if no lane has a clock. */
export const lasts = ({ race }) => race.pacemaker?.seconds || 1;

/**
 * The steps that the lanes have reached after `elapsed` seconds of their clocks, -1 before the first step.
 * A lane without a clock has done the same share of its steps as has passed of the race's time.
 */
export function stepsAfter(trace, elapsed) {
  const share = Math.min(1, elapsed / lasts(trace));
  const byStep = (lane) => Math.floor(share * lane.count) - 1;
  return trace.lanes.map((lane) => (trace.race.clocked.includes(lane) ? lane.doneBy(elapsed) : byStep(lane)));
}

/** The width of the layout of a grid with n cells, and the scale at which it fills a box best. */
function fit(n, width, height) {
  let best = { scale: 0 };
  for (let wide = 280; wide <= 1400; wide += 20) {
    const { rows, h } = layout(n, wide);
    const scale = Math.min(width / wide, height / (rows * h));
    if (scale > best.scale) best = { wide, scale, high: rows * h };
  }
  return best;
}

/** Draws the lanes side by side in a box {x, y, width, height}. */
export class Field {
  constructor(trace, colours, box, scale, { texts = false, guesses = true } = {}) {
    Object.assign(this, { trace, colours, scale, texts, guesses });
    const { lanes } = trace;
    const width = (box.width - GAP * (lanes.length - 1)) / lanes.length;
    this.below = texts ? TEXT : 0;
    this.sides = lanes.map((lane, i) => this.#side(lane, { ...box, x: box.x + i * (width + GAP), width }));
  }

  #side(lane, box) {
    const grid = new Grid(document.createElement("canvas"));
    const room = fit(lane.n, box.width, box.height - HEAD - this.below);
    grid.resize(lane.n, room.wide, this.colours, { ratio: room.scale * this.scale });
    return { lane, box, grid, size: [room.wide * room.scale, room.high * room.scale] };
  }

  draw(pen, steps) {
    const { trace, colours } = this;
    const said = trace.lanes.map((lane, i) => labelsOf(trace, lane, steps[i], this.guesses));
    const base = trace.lanes.indexOf(trace.reference);
    this.sides.forEach(({ lane, box, grid, size }, i) => {
      const colour = colours.lanes[trace.colourOf(lane)];
      this.#head(pen, lane, steps[i], box, colour);
      const { tokens, list: labels, faint } = said[i];
      const other = i === base ? null : said[base].tokens;
      grid.draw({ lane, step: steps[i], tokens, other, given: trace.given, labels, faint, fresh: true });
      pen.drawImage(grid.canvas, box.x, box.y + HEAD, ...size);
      if (!this.texts) return;
      pen.fillStyle = colours.ink;
      pen.textBaseline = "top";
      const below = { x: box.x, y: box.y + HEAD + size[1] + 12, width: box.width, height: this.below - 14 };
      fillBox(pen, textOf(trace, lane, steps[i]), below, [16, 14, 12]);
    });
  }

  #head(pen, lane, step, { x, y, width }, colour) {
    const { trace, colours } = this;
    const { clock, told: progress, done } = heading(trace, lane, step);
    pen.textBaseline = "alphabetic";
    type(pen, 20, 700);
    pen.fillStyle = colours.ink;
    pen.textAlign = "right";
    pen.fillText(clock, x + width, y + 20);
    pen.textAlign = "left";
    pen.fillText(cut(pen, lane.name, width - pen.measureText(clock).width - 14), x, y + 20);
    type(pen, 14);
    pen.fillStyle = colours.muted;
    pen.fillText(cut(pen, progress, width), x, y + 41);
    pen.fillStyle = colours.line;
    pen.fillRect(x, y + 50, width, 4);
    pen.fillStyle = colour;
    pen.fillRect(x, y + 50, width * done, 4);
  }
}

/** The heading of a lane after one of its steps: its clock, its work, and the share of its steps. */
export function heading(trace, lane, step) {
  const now = lane.at(step);
  const steps = lane.endsAt(lane.count - 1) ? lane.count : lane.most;
  const taken = lane.clamp(step) + 1;
  const at = `step ${taken} / ${steps}`;
  const share = now && percent(now.totalFlops / now.totalBaseline);
  const time = trace.race.clocked.includes(lane) ? seconds(now?.totalSeconds ?? 0) : "";
  return {
    clock: `${time}${lane.endsAt(step) ? " ✓" : ""}`.trim(),
    told: now ? `${share} of all FLOPs, ${now.lockedCount} of ${trace.n} locked, ${at}` : at,
    done: taken / Math.max(1, steps),
  };
}

/** The sentence for a moment of the race. steps: the step of every lane. */
export function told(trace, steps) {
  const over = trace.lanes.map((lane, i) => lane.endsAt(steps[i]));
  if (over.every(Boolean)) return verdict(trace);
  const done = trace.lanes.filter((_, i) => over[i]);
  const rest = trace.lanes.filter((_, i) => !over[i]);
  if (done.length) return stillWorking(done, rest);
  if (steps.every((step) => step < 0)) return narrate(trace, -1);
  const at = steps[trace.lanes.indexOf(trace.subject)];
  return happens(trace, trace.subject, at, new Set(steps).size > 1);
}

/** The poster on a canvas. */
export class Poster {
  /**
   * Sets the size of the canvas to WIDTH * scale by HEIGHT * scale.
   * texts: whether the lanes' texts are shown. guesses: see labelsOf.
   */
  constructor(canvas, trace, colours, { scale = 1, ...shown } = {}) {
    Object.assign(this, { canvas, trace, colours, scale });
    Object.assign(canvas, { width: WIDTH * scale, height: HEIGHT * scale });
    this.pen = canvas.getContext("2d");
    const box = { x: MARGIN, y: 134, width: WIDTH - 2 * MARGIN, height: HEIGHT - 134 - 48 };
    this.field = new Field(trace, colours, box, scale, shown);
    this.samples = samples(colours, scale);
  }

  draw(steps) {
    const { pen, trace, colours, scale } = this;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colours.panel;
    pen.fillRect(0, 0, WIDTH, HEIGHT);
    pen.textBaseline = "alphabetic";
    pen.textAlign = "right";
    type(pen, 15);
    pen.fillStyle = colours.muted;
    const { model } = trace.header;
    const about = cut(pen, `${model.name}, ${count(trace.reference.masks, "token")} to write`, 600);
    pen.fillText(about, WIDTH - MARGIN, 38);
    pen.textAlign = "left";
    type(pen, 24, 700);
    pen.fillStyle = colours.ink;
    pen.fillText("SureLock: decoders race", MARGIN, 38);
    pen.textBaseline = "top";
    fillBox(pen, told(trace, steps), { x: MARGIN, y: 54, width: WIDTH - 2 * MARGIN, height: 68 }, [19, 16, 13]);
    this.field.draw(pen, steps);
    this.#legend();
  }

  #legend() {
    const { pen, samples: grid, scale } = this;
    const names = [...SHOWN.map((state) => STATES[state]), "differs from the reference"];
    let x = MARGIN;
    type(pen, 14);
    pen.textBaseline = "middle";
    pen.fillStyle = this.colours.muted;
    names.forEach((name, i) => {
      const [left, top, width, height] = grid.rect(i);
      const from = [left, top, width, height].map((at) => at * scale);
      pen.drawImage(grid.canvas, ...from, x, HEIGHT - 32, width, height);
      pen.fillText(name, x + 32, HEIGHT - 23);
      x += 32 + pen.measureText(name).width + 24;
    });
  }
}

/** A grid with a cell in every state, and a cell that differs from the reference. */
function samples(colours, scale) {
  const grid = new Grid(document.createElement("canvas"));
  const states = [...SHOWN, ACTIVE];
  const tokens = states.map(() => 0);
  const other = states.map((_, i) => (i < SHOWN.length ? 0 : 1));
  grid.resize(states.length, SAMPLE_WIDTH * states.length, colours, { tall: SAMPLE_HEIGHT, ratio: scale });
  grid.draw({ lane: { steps: [] }, step: -1, states, tokens, other, given: [0, 0, 0, 0, 0], labels: [] });
  return grid;
}
