// Writes text on a canvas, cut or wrapped to the available space.

export const FONT = "'SL Sans', system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif";

export const type = (pen, size, weight = 400) => {
  pen.font = `${weight} ${size}px ${FONT}`;
};

/** A text, or its beginning with an ellipsis if it is wider than `width`. */
export function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  const chars = Array.from(text);
  let low = 0;
  let high = chars.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (pen.measureText(`${chars.slice(0, middle).join("")}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${chars.slice(0, low).join("")}…`;
}

/**
 * The lines of a text, at most `most` lines of at most `width` pixels. Long words are split, and the last line is
 * cut.
 */
function wrap(pen, text, width, most) {
  const lines = [];
  let line = "";
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const longer = line ? `${line} ${word}` : word;
    if (line && pen.measureText(longer).width > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  if (line) lines.push(line);
  const kept = lines.length > most ? [...lines.slice(0, most - 1), lines.slice(most - 1).join(" ")] : lines;
  return kept.map((text) => cut(pen, text, width));
}

/** Writes a text into a box in the largest of `sizes` in which the whole text fits. */
export function fillBox(pen, text, { x, y, width, height }, sizes) {
  for (const size of sizes) {
    type(pen, size);
    const step = size * 1.35;
    const most = Math.max(1, Math.floor(height / (size * 1.35)));
    const lines = wrap(pen, text, width, most + 1);
    if (lines.length > most && size !== sizes.at(-1)) continue;
    for (const [i, line] of wrap(pen, text, width, most).entries()) pen.fillText(line, x, y + i * step);
    return;
  }
}
