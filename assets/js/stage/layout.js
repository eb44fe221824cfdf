// The layout of the cells of a grid.

export const WHOLE_TOKENS = 256; // the most cells that are shown at once with their whole tokens
const NARROWEST = 35; // the least width of a cell in pixels, if many cells have to be visible at once
const LOWEST = 13; // the least height of such a cell
const LEAST_ROOM = 60; // the least height of all cells of a canvas in pixels
const WIDEST = 96; // the greatest width of a cell of a short text
const HIGHEST = 46; // the greatest height of such a cell

/**
 * The columns, rows and cell size for n cells in `width` CSS pixels.
 * @param {number} n
 * @param {number} width
 * @param {object} [room]
 * @param {boolean} [room.whole] whether all cells of a long text are visible at once, without their tokens
 * @param {number} [room.tall] the height for a short text, or for a text that is visible at once, in CSS pixels
 * @param {number} [room.readable] the most cells whose tokens are shown
 */
export function layout(n, width, { whole = false, tall = Infinity, readable = WHOLE_TOKENS } = {}) {
  if (n <= readable) {
    let columns = Math.max(5, Math.min(12, Math.floor(width / 57)));
    const most = Math.max(columns, Math.floor(width / NARROWEST));
    while (columns < most && Math.ceil(n / columns) * LOWEST > tall) columns++;
    if (tall < Infinity) while (width <= (columns - 1) * WIDEST && Math.ceil(n / (columns - 1)) * 26 <= tall) columns--;
    const row = Math.floor(tall / Math.ceil(n / columns));
    const usual = tall < Infinity ? HIGHEST : 26;
    return cells(n, width, columns, Math.max(LOWEST, Math.min(n <= 144 ? usual : 23, row)));
  }
  if (!whole) return cells(n, width, Math.max(5, Math.min(16, Math.floor(width / 57))), 23);
  const room = Math.max(LEAST_ROOM, Math.min(640, width * 1.15, tall));
  const size = Math.max(7, Math.sqrt((width * room) / n));
  const columns = Math.ceil(width / size);
  const w = width / columns;
  return { columns, rows: Math.ceil(n / columns), w, h: Math.max(w, 9), gap: w > 12 ? 2 : 1, text: false };
}

function cells(n, width, columns, h) {
  const rows = Math.ceil(n / columns);
  return { columns, rows, w: width / columns, h, gap: h < 18 ? 2 : 3, text: true };
}
