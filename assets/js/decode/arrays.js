// The functions of numpy that decisions need, on flat arrays. Whole numbers are Int32Array, flags Uint8Array, other
// numbers Float64Array.

/** An empty list. */
export const NONE = new Int32Array(0);

/** The indices of set flags, in ascending order. */
export function find(flags) {
  const places = new Int32Array(count(flags));
  for (let i = 0, k = 0; i < flags.length; i++) if (flags[i]) places[k++] = i;
  return places;
}

/** The number of set flags. */
export function count(flags) {
  let sum = 0;
  for (let i = 0; i < flags.length; i++) sum += flags[i];
  return sum;
}

/** The values at some indices. */
export const take = (values, places) => new values.constructor(places.length).map((_, i) => values[places[i]]);

/** Sets the values at some indices. value: one value for all indices, or an array with a value per index. */
export function put(values, places, value) {
  const isList = ArrayBuffer.isView(value);
  for (let i = 0; i < places.length; i++) values[places[i]] = isList ? value[i] : value;
}

/** A table of some rows of a flat table with `width` columns. */
export function rowsOf(values, rows, width) {
  const table = new values.constructor(rows.length * width);
  rows.forEach((row, i) => {
    table.set(values.subarray(row * width, (row + 1) * width), i * width);
  });
  return table;
}

/** The flags of test(0) to test(size - 1). */
export const flags = (size, test) => new Uint8Array(size).map((_, i) => Number(test(i)));

/** Flags that are set in either list. */
export const either = (a, b) => a.map((flag, i) => flag | b[i]);

/** All values of several lists, in one array of the type Kind. */
export function join(lists, Kind = Int32Array) {
  const all = new Kind(lists.reduce((sum, list) => sum + list.length, 0));
  let at = 0;
  for (const list of lists) {
    all.set(list, at);
    at += list.length;
  }
  return all;
}

/** The values that occur in either list, in ascending order, without repetitions. */
export function union(a, b) {
  const all = join([a, b]).sort();
  return all.filter((slot, i) => i === 0 || slot !== all[i - 1]);
}

/** The first index in an ascending list whose value is at least `value`. */
export function place(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The numbers 0 to size - 1 in the order of some keys, functions of the number. The first key decides, among equals the
 * second, and so on; among equals in all keys the number itself. NaN comes last.
 */
export function ranked(size, ...keys) {
  const tables = keys.map((key) => new Float64Array(size).map((_, i) => key(i)));
  const order = new Int32Array(size).map((_, i) => i);
  return order.sort((i, j) => {
    for (const table of tables) {
      const side = compared(table[i], table[j]);
      if (side) return side;
    }
    return i - j;
  });
}

const compared = (a, b) =>
  a > b || (Number.isNaN(a) && !Number.isNaN(b)) ? 1 : -Number(a < b || (Number.isNaN(b) && !Number.isNaN(a)));

/** The index of the largest value, the first among equals. */
export const largest = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);

/** Frees the memory of a typed array that is not needed any more, even if something still refers to it. */
export const release = ({ buffer }) => buffer.transfer?.(0); // older browsers free it by garbage collection
