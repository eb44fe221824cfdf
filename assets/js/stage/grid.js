// One grid of tokens on a canvas. It draws a GridView, and finds the cell under a point. It has no state of the run.
// It remembers how every cell was drawn: a step changes a dozen cells, and only changed cells are drawn again.

import { ACTIVE, isMasked, LOCKED, MASKED, RESTING } from "../trace/states.js";
import { layout } from "./layout.js";
import { bordersOf, drawBorders, glow, markDiffers, ring, TAG, tag } from "./marks.js";
import { FONT } from "./pens.js";
import { shade } from "./theme.js";

const NARROWER = 1.35; // a word may be squeezed by this factor
const SHADES = 16; // the number of colours of the scale for values
const MOST_SPRITES = 800; // the most pictures of cells that are kept
const FAINT = [0, 0.35, 0.5, 0.65, 0.8]; // the opacity of a guess, by its level
// The glow of a cell: not changed lately, changed two steps ago, one step ago, in this step.
const FADE = [0, 0.2, 0.5, 1];
const OUTLINES = 8; // levels of an outline, 0 for none
const CORNER = 7; // pixels of the corner that marks a locked cell, at most
const ON_THE_LINE = /^[.,;:…_]+$/u;
const PUNCTUATION = /^[\p{P}\p{S}]{1,2}$/u;
const CUT = 14; // the width in pixels over which a cut word fades

/** The part of a cell beside a pin's number. */
const beside = ([x, y, w, h]) => [x + TAG, y, w - TAG, h];

/** The width of an outline in pixels, by its level. */
const outlineOf = (level) => 0.8 + (2.6 * (level - 1)) / (OUTLINES - 2);

/** The number of a value's shade, from 1; 0 for NaN. */
const toneOf = (value) => (Number.isNaN(value) ? 0 : 1 + Math.round(value * (SHADES - 1)));

/** Draws the corner of a locked cell, for visitors who do not see the hue. */
function lockCorner(pen, [w, h], colour) {
  const size = Math.min(CORNER, h / 3, w / 3);
  pen.beginPath();
  pen.moveTo(w - size, 0);
  pen.lineTo(w, 0);
  pen.lineTo(w, size);
  pen.closePath();
  pen.save();
  pen.globalCompositeOperation = "source-atop"; // within the cell's round corner
  pen.fillStyle = colour;
  pen.fill();
  pen.restore();
}

/**
 * The content of a grid. Lists have one entry per cell.
 * @typedef {object} GridView
 * @property {Lane} lane
 * @property {number} step
 * @property {number[]} tokens
 * @property {string[]} labels the texts of the cells
 * @property {number[]} [states] by default the lane's states after the step
 * @property {number[]} [values] values that colour the cells: 0 to 1, or NaN
 * @property {number[]} [faint] the levels of guesses, see labelsOf
 * @property {number[]} [outlined] the levels of the wave, see touch/wave.js
 * @property {number[] | null} other the tokens of the reference; differing tokens are underlined
 * @property {boolean[]} given whether a cell belongs to the prompt
 * @property {boolean} fresh whether cells that changed lately glow
 * @property {number} [hover] the cell under the pointer
 * @property {Map<number, number>} [pins] the numbers of pinned cells
 * @property {[number, number]} [seen] the first cell in view, and the first cell after those in view
 * @property {number} [top] see #scroll
 * @property {number} [block] the length of a block, see bordersOf
 */

/** The grid of a canvas. */
export class Grid {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.fits = new Map(); // label -> {lines, size} for the present cell width
  }

  /**
   * Fits the canvas to its width. Call it when an argument or the theme has changed.
   * ratio: device pixels per CSS pixel. most: the greatest height of the canvas. `whole` and `tall`: see layout.
   */
  resize(n, width, colours, { whole = false, tall: room, ratio = this.#screen(), most = Infinity } = {}) {
    const box = layout(n, width, { whole, tall: room });
    if (!this.box || box.w !== this.box.w || box.h !== this.box.h) this.fits.clear();
    const tall = Math.min(most, box.rows * box.h);
    Object.assign(this, { n, box, ratio, colours, tall, offset: 0 });
    const w = Math.round(width * ratio);
    const h = Math.round(tall * ratio);
    if (this.canvas.width !== w || this.canvas.height !== h) Object.assign(this.canvas, { width: w, height: h });
    this.canvas.style.height = `${tall}px`;
    this.sprites = new Map();
    this.shades = Array.from({ length: SHADES }, (_, i) => shade(colours.scale, i / (SHADES - 1)));
    this.looks = null;
  }

  /** Device pixels per CSS pixel. Presenter mode, which enlarges the page, has more. */
  #screen() {
    return Math.min(window.devicePixelRatio || 1, 2) * (this.canvas.currentCSSZoom ?? 1);
  }

  /** The height of the cells above the canvas, in CSS pixels. */
  get top() {
    return this.offset / this.ratio;
  }

  cellAt(x, y) {
    const column = Math.floor(x / this.box.w);
    const row = Math.floor((y + this.top) / this.box.h);
    const cell = row * this.box.columns + column;
    return column >= 0 && column < this.box.columns && row >= 0 && cell < this.n ? cell : -1;
  }

  /** The box of a cell among all cells. On the canvas it is `top` pixels higher. */
  rect(cell) {
    const { columns, w, h, gap } = this.box;
    return [(cell % columns) * w + gap / 2, Math.floor(cell / columns) * h + gap / 2, w - gap, h - gap];
  }

  /** @param {GridView} view */
  draw(view) {
    const { pen, n } = this;
    const { states = view.lane.row(view.step), values = null, seen: [first, end] = [0, n] } = view;
    const lit = this.#lit(view);
    const differs = this.#differences(view);
    const { given, block = 0 } = view;
    if (!this.looks || this.given !== given || this.block !== block) {
      Object.assign(this, { looks: new Array(n).fill(""), given, block });
      pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    }
    this.#scroll(view.top ?? 0);
    for (let cell = first; cell < end; cell++) {
      const state = states[cell];
      const tone = values ? toneOf(values[cell]) : 0;
      const text = view.labels[cell] ?? "";
      const pin = view.pins?.get(cell) ?? -1;
      const hovered = cell === view.hover;
      const faint = view.faint?.[cell] ?? 0;
      const outlined = view.outlined?.[cell] ?? 0;
      const look = [state, tone, faint, lit[cell], differs[cell], pin, hovered, outlined, text].join();
      if (look === this.looks[cell]) continue;
      this.looks[cell] = look;
      this.#cell(cell, { state, tone, text, faint, lit: lit[cell], differs: differs[cell], pin, hovered, outlined });
    }
  }

  /**
   * Moves the picture, so that only new rows are drawn. top: the height of the cells above the canvas, in CSS pixels.
   */
  #scroll(top) {
    const { pen, canvas, box, ratio, offset: before } = this;
    const after = Math.round(Math.max(0, Math.min(top, box.rows * box.h - this.tall)) * ratio);
    if (after === before) return;
    this.offset = after;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.globalCompositeOperation = "copy";
    pen.drawImage(canvas, 0, before - after);
    pen.globalCompositeOperation = "source-over";
    const rowOf = (y) => y / ratio / box.h;
    const first = Math.ceil(rowOf(Math.max(before, after) + 1)); // the first row that stays on the canvas as a whole
    const end = Math.floor(rowOf(Math.min(before, after) + canvas.height - 1));
    this.looks.fill("", 0, first * box.columns);
    this.looks.fill("", Math.max(first, end) * box.columns);
  }

  #cell(cell, { state, tone, text, faint, lit, differs, pin, hovered, outlined }) {
    const { pen, ratio, colours, offset } = this;
    const { columns, w, h } = this.box;
    const [x, y] = this.rect(cell);
    const column = cell % columns;
    const row = Math.floor(cell / columns);
    const edge = (size, i) => Math.round(i * size * ratio);
    const left = edge(w, column);
    const top = edge(h, row);
    const region = [left, top - offset, edge(w, column + 1) - left, edge(h, row + 1) - top];
    const { n, given, block } = this;
    const borders = bordersOf(cell, { n, columns, given, block });
    // Whether lines are drawn at the cell's edge.
    const edged = lit || differs || pin >= 0 || hovered || outlined || borders.length;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    if (edged) {
      pen.save();
      pen.beginPath();
      pen.rect(...region);
      pen.clip();
    }
    pen.clearRect(...region);
    const over = faint ? " " : ""; // a guess replaces the dot of a masked cell
    // Such a word is drawn later: over the glow, or beside the pin.
    const bare = lit || pin >= 0 || faint ? over : text;
    pen.drawImage(this.#sprite(state, tone, bare), Math.round(x * ratio), Math.round(y * ratio) - offset);
    pen.setTransform(ratio, 0, 0, ratio, 0, -offset);
    const place = { at: this.rect(cell), gap: this.box.gap };
    for (const [i, colour] of [colours.fresh, colours.freshLock, colours.freshMask].entries())
      glow(pen, place, colour, FADE[(lit >> (2 * i)) & 3]);
    const numbered = pin >= 0 && place.at[2] >= 2 * TAG;
    pen.globalAlpha = FAINT[faint] || 1;
    if (text !== bare) this.#label(pen, numbered ? beside(place.at) : place.at, text, this.#ink(state, tone));
    pen.globalAlpha = 1;
    if (differs) markDiffers(pen, place, colours.differs);
    if (!edged) return;
    drawBorders(pen, borders, [column * w, row * h, w, h, columns * w], colours);
    if (numbered) tag(pen, place, colours.pins[pin], colours.panel, String(pin + 1));
    if (pin >= 0) ring(pen, place, colours.pins[pin], 2.5);
    if (outlined) ring(pen, place, colours.differs, outlineOf(outlined));
    if (hovered) ring(pen, place, colours.ink, 2);
    pen.restore();
  }

  /** The picture of a cell. Copying a picture is much faster than drawing its shapes. */
  #sprite(state, tone, text) {
    const key = `${state * 32 + tone} ${text}`;
    if (!this.sprites.has(key)) {
      if (this.sprites.size >= MOST_SPRITES) this.sprites.clear();
      this.sprites.set(key, this.#picture(state, tone, text));
    }
    return this.sprites.get(key);
  }

  /** Makes the picture of a cell with its word. The cues of its state are drawn over a shade, too. */
  #picture(state, tone, text) {
    const { box, ratio, colours } = this;
    const shaded = this.shades[tone - 1];
    const sprite = document.createElement("canvas");
    const pen = sprite.getContext("2d");
    Object.assign(sprite, {
      width: Math.max(1, Math.round((box.w - box.gap) * ratio)),
      height: Math.max(1, Math.round((box.h - box.gap) * ratio)),
    });
    const w = sprite.width / ratio;
    const h = sprite.height / ratio;
    const radius = Math.min(5, w / 4);
    pen.scale(ratio, ratio);
    pen.beginPath();
    pen.roundRect(0, 0, w, h, radius);
    const stateColour = [colours.masked, colours.active, colours.locked, colours.resting, colours.masked][state];
    pen.fillStyle = shaded?.fill ?? stateColour;
    pen.fill();
    if (state === LOCKED) lockCorner(pen, [w, h], shaded?.ink ?? colours.lockedMark);
    if (state === ACTIVE || state === RESTING) {
      const line = w > 14 ? 1.5 : 1;
      pen.beginPath();
      pen.roundRect(line / 2, line / 2, w - line, h - line, Math.max(0, radius - line / 2));
      pen.strokeStyle = state === ACTIVE ? colours.activeRing : colours.restingRing;
      pen.setLineDash(state === ACTIVE ? [] : [2, 2]);
      pen.lineWidth = line;
      pen.stroke();
    }
    if (isMasked(state) && w > 5 && !text) {
      pen.beginPath();
      pen.arc(w / 2, h / 2, Math.min(2, w / 7), 0, 7);
      pen.fillStyle = pen.strokeStyle = shaded?.ink ?? colours.maskedDot;
      if (state === MASKED) pen.fill();
      else pen.stroke();
    }
    if (text.trim()) this.#label(pen, [0, 0, w, h], text, this.#ink(state, tone));
    return sprite;
  }

  /**
   * By cell, the indices in FADE of its unmasking, its locking (times 4) and its masking again (times 16), added up.
   */
  #lit({ lane, step, fresh }) {
    const lit = new Uint8Array(this.n);
    for (let age = 2; fresh && age >= 0; age--) {
      const { unmasked = [], written = [], locked = [], masked = [] } = lane.steps[step - age] ?? {};
      for (const [i, cells] of [unmasked, written, locked, masked].entries()) {
        const bits = 2 * Math.max(0, i - 1);
        for (const cell of cells) lit[cell] = (lit[cell] & ~(3 << bits)) | ((3 - age) << bits);
      }
    }
    return lit;
  }

  #ink(state, tone) {
    const { colours, shades } = this;
    if (tone) return shades[tone - 1].ink;
    return { [LOCKED]: colours.lockedText, [ACTIVE]: colours.activeText }[state] ?? colours.ink;
  }

  #label(pen, [x, y, w, h], label, ink) {
    const fit = this.#fit(label, w - 6, h);
    const middle = y + h / 2 + 0.5;
    pen.direction = "ltr";
    pen.textBaseline = "middle";
    pen.font = `${fit.weight} ${fit.size}px ${FONT}`;
    pen.fillStyle = ink;
    const lift = ON_THE_LINE.test(label) ? 0.16 * fit.size : 0;
    if (fit.cut) return this.#faded(pen, label, [x + 2, middle, w - 3], ink);
    pen.textAlign = "center";
    fit.lines.forEach((line, i) => {
      const fromMiddle = i - (fit.lines.length - 1) / 2;
      pen.fillText(line, x + w / 2, middle - lift + fromMiddle * fit.size * 1.02, w - 3);
    });
  }

  /** Draws the beginning of a word that is wider than its cell. The cut end fades. */
  #faded(pen, label, [x, y, width], ink) {
    if (!ink) return; // the stylesheet is not loaded yet
    const fade = pen.createLinearGradient(x + width - CUT, 0, x + width, 0);
    fade.addColorStop(0, ink);
    fade.addColorStop(1, `${ink}00`);
    pen.save();
    pen.beginPath();
    pen.rect(x, y - this.box.h, width, 2 * this.box.h);
    pen.clip();
    pen.textAlign = "left";
    pen.fillStyle = fade;
    pen.fillText(label, x, y);
    pen.restore();
  }

  /**
   * {lines, size, weight, cut}: the largest type in which a whole label fits, if necessary squeezed or in two lines.
   * Longer labels are cut. Punctuation is larger and bold, since it has few pixels.
   */
  #fit(label, width, height) {
    const key = width === this.box.w - this.box.gap - 6 ? label : `${label} ${width}`;
    let fit = this.fits.get(key);
    if (fit) return fit;
    const low = height < 18; // room for one line in the smallest legible type
    const least = low ? 9 : 11;
    if (PUNCTUATION.test(label)) {
      fit = { lines: [label], size: Math.min(22, Math.max(13, height * 0.8)), weight: 700 };
      this.fits.set(key, fit);
      return fit;
    }
    this.pen.font = `500 13px ${FONT}`;
    const wide = this.pen.measureText(label).width;
    const most = Math.max(13, Math.min(18, height * 0.5));
    const one = Math.min(most, height * (low ? 0.75 : 0.62), (13 * width) / wide);
    const narrower = (wide * least) / 13 / width;
    const chars = Array.from(label);
    if (one >= least || narrower <= NARROWER) fit = { lines: [label], size: Math.max(one, least) };
    else if (low) fit = { lines: [label], size: least, cut: true };
    else {
      const half = Math.ceil(chars.length / 2);
      const two = Math.min(9.5, (13 * width * 1.9) / wide);
      const halves = [chars.slice(0, half).join(""), chars.slice(half).join("")];
      fit = two >= 6 ? { lines: halves, size: Math.max(two, 6.5) } : { lines: [label], size: least, cut: true };
    }
    fit.weight = 500;
    this.fits.set(key, fit);
    return fit;
  }

  /** By cell, 1 if the generated token differs from the reference's token. */
  #differences({ tokens, other, given }) {
    const differs = new Uint8Array(this.n);
    if (!other) return differs;
    for (let cell = given.indexOf(0); cell < this.n; cell++)
      differs[cell] = tokens[cell] >= 0 && other[cell] >= 0 && tokens[cell] !== other[cell];
    return differs;
  }
}
