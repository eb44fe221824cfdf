// Marks that are drawn over a cell without covering its word: the glow of new cells, borders, differences and pins.

import { FONT } from "./pens.js";

export const TAG = 11; // pixels that a pin's number takes beside the word

/**
 * The sides of a cell at which the prompt or a block ends: [[side, "prompt" or "block"], ...]. block: a block's
 * length, or 0.
 */
export function bordersOf(cell, { n, columns, given, block }) {
  const partOf = (p) => {
    if (p < 0 || p >= n) return null;
    return given[p] ? "prompt" : block && Math.floor((p - given.indexOf(0)) / block);
  };
  const cellPart = partOf(cell);
  const column = cell % columns;
  const left = column ? cell - 1 : -1;
  const right = column < columns - 1 ? cell + 1 : -1;
  const beside = { top: cell - columns, bottom: cell + columns, left, right };
  return Object.entries(beside).flatMap(([side, other]) => {
    const part = partOf(other);
    if (part === cellPart || (part === null && cellPart !== "prompt")) return [];
    const kind = cellPart === "prompt" || part === "prompt" ? "prompt" : "block";
    return [[side, kind]];
  });
}

/** Draws the borders of a cell. The box is [x, y, w, h] with the gap, and the grid's width. Two cells share a line. */
export function drawBorders(pen, sides, [x, y, w, h, width], colours) {
  const e = 0.9;
  const l = Math.max(x, e);
  const r = Math.min(x + w, width - e);
  const t = Math.max(y, e);
  const b = y + h;
  const lines = { top: [l, t, r, t], bottom: [l, b, r, b], left: [l, t, l, b], right: [r, t, r, b] };
  for (const [side, kind] of sides) {
    const [fromX, fromY, toX, toY] = lines[side];
    pen.beginPath();
    pen.moveTo(fromX, fromY);
    pen.lineTo(toX, toY);
    pen.strokeStyle = kind === "prompt" ? colours.prompt : colours.muted;
    pen.lineWidth = kind === "prompt" ? 1.8 : 3;
    pen.lineCap = "square";
    pen.stroke();
  }
}

/** Draws the glow of a cell. strength: 0 to 1. */
export function glow(pen, { at: [x, y, w, h], gap }, colour, strength) {
  if (!strength) return;
  pen.globalAlpha = strength;
  pen.beginPath();
  pen.roundRect(x - 0.2, y - 0.2, w + 0.4, h + 0.4, Math.min(6, w / 4));
  pen.strokeStyle = colour;
  pen.lineWidth = Math.max(2, gap);
  pen.stroke();
  pen.globalAlpha = 0.22 * strength;
  pen.fillStyle = colour;
  pen.fill();
  pen.globalAlpha = 1;
}

/** Draws a line below the word, in the gap and in the last pixel of the cell. */
export function markDiffers(pen, { at: [x, y, w, h], gap }, colour) {
  pen.fillStyle = colour;
  pen.fillRect(x, y + h - 1, w, 1 + gap / 2);
}

/** Draws a ring inside the edge of a cell. line: its width. */
export function ring(pen, { at: [x, y, w, h], gap }, colour, line) {
  const inset = (line - gap) / 2; // the outer edge of the line is the edge of the cell
  pen.beginPath();
  pen.roundRect(x + inset, y + inset, w - 2 * inset, h - 2 * inset, Math.min(6, w / 4));
  pen.strokeStyle = colour;
  pen.lineWidth = line;
  pen.stroke();
}

/** Draws the number of a pin beside the word. */
export function tag(pen, { at: [x, y, , h] }, colour, ink, text) {
  pen.fillStyle = colour;
  pen.fillRect(x, y, TAG - 1, h);
  pen.fillStyle = ink;
  pen.font = `700 9px ${FONT}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(text, x + TAG / 2, y + h / 2 + 0.5);
}
