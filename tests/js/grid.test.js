import assert from "node:assert/strict";
import test from "node:test";

import { Grid } from "../../assets/js/stage/grid.js";
import { labelsOf } from "../../assets/js/stage/labels.js";
import { layout } from "../../assets/js/stage/layout.js";
import { Raster } from "../../assets/js/stage/raster.js";
import { cellText } from "../../assets/js/stage/spoken.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { onPage } from "./page.js";
import { base64, every, raceOf, shown, small } from "./small.js";

test("cells are laid out in the columns that fit, with their words up to a length or when they are scrolled", () => {
  const told = (...how) => {
    const { columns, rows, w, h, gap, text } = layout(...how);
    return [columns, rows, Math.round(10 * w) / 10, Math.round(10 * h) / 10, gap, text];
  };
  assert.deepEqual(told(100, 600), [10, 10, 60, 26, 3, true]);
  assert.deepEqual(told(144, 570), [10, 15, 57, 26, 3, true]);
  assert.deepEqual(told(145, 569), [9, 17, 63.2, 23, 3, true]);
  assert.deepEqual(told(257, 2000), [16, 17, 125, 23, 3, true]);
  assert.deepEqual(told(256, 600, { whole: true }), [10, 26, 60, 23, 3, true], "what fits is always readable");
  assert.deepEqual(told(142, 590, { tall: 330 }), [10, 15, 59, 22, 3, true], "rows shrink to what is there");
  assert.deepEqual(told(142, 590, { tall: 900 }), [7, 21, 84.3, 42, 3, true], "what is there is filled");
  assert.deepEqual(told(142, 358, { tall: 205 }), [10, 15, 35.8, 13, 2, true], "then there are more columns");
  assert.deepEqual(told(140, 600, { tall: 196 }), [10, 14, 60, 14, 2, true], "and no more than have to be");
  assert.deepEqual(told(256, 200, { tall: 50 }), [5, 52, 40, 13, 2, true], "none is narrower than can be read");
  assert.deepEqual(told(1024, 600, { whole: true }), [31, 34, 19.4, 19.4, 2, false]);
  assert.deepEqual(told(4096, 400, { whole: true }), [58, 71, 6.9, 9, 1, false]);
  assert.deepEqual(told(2600, 600, { whole: true }), [50, 52, 12, 12, 1, false]);
});

test("a raster has a column for each step of the cursor, a row for each position, and ends with its lane", (t) => {
  onPage(t);
  const colours = Object.fromEntries(
    ["Masked", "Active", "Locked", "Resting", "Waiting"].map((name, i) => [
      `raster${name}`,
      `#0000${`${i + 1}`.padStart(2, "0")}`,
    ]),
  );
  const drawn = (trace, lane, step = 2) => {
    const columns = [];
    const pen = {
      createImageData: (width, height) => ({ height, data: new Uint8Array(4 * width * height) }),
      putImageData: ({ data, height }, column) => {
        columns[column] = Array.from({ length: height }, (_, p) => data[4 * p + 2]);
      },
      clearRect: (from) => columns.splice(from),
    };
    const canvas = { getContext: () => pen, setAttribute: (_, text) => (canvas.label = text) };
    const raster = Object.assign(new Raster(lane), { canvas, cursor: { style: {} } });
    raster.moveTo(trace, 0);
    assert.equal(raster.cursor.style.transform, undefined, "before it is drawn there is no cursor");
    raster.draw(trace, colours, step);
    const [forth] = [structuredClone(columns)];
    raster.moveTo(trace, -1);
    assert.deepEqual(columns, [], "before the first step it is empty");
    raster.moveTo(trace, step);
    assert.deepEqual(columns, forth, "back and forth");
    raster.moveTo(trace, 1);
    assert.ok(columns.length <= 2, "nothing is drawn behind the cursor");
    const rows = Array.from({ length: canvas.height }, (_, p) =>
      Array.from({ length: canvas.width }, (__, column) => forth[column]?.[p] ?? 0).join(""),
    );
    return [...rows, canvas.label, raster.cursor.style.transform];
  };
  const trace = Trace.parse(small());
  const [all, locks] = trace.lanes;
  const label = "states of 4 positions over 3 steps";
  assert.deepEqual(drawn(trace, locks), ["242", "223", "223", "122", `=Locks: ${label}`, "translateX(66.667cqw)"]);
  trace.race.byClock = true;
  assert.deepEqual(drawn(trace, all), ["222", "222", "222", "122", `All: ${label}`, "translateX(66.667cqw)"]);
  const records = small().records.map((each) => ({ ...each, seconds: each.lane === "b" ? 0.25 : 1 }));
  const raced = shown(Trace.parse({ ...small(), records }), { byClock: true });
  assert.deepEqual(drawn(raced, raced.lanes[1]).slice(0, 4), ["200", "300", "300", "200"], "then its time is saved");
  const live = shown(new Trace(small()), { byClock: true, live: true });
  for (const record of small().records.slice(0, 2)) live.append(record);
  assert.deepEqual(drawn(live, live.lanes[0]).slice(0, 4), ["200", "200", "200", "100"]);
});

/** Makes canvases that keep all calls of their pens, [name, ...arguments]; a letter is 7 pixels wide. */
function recorded(t) {
  const canvases = [];
  const canvas = () => {
    const [calls, kept] = [[], {}];
    const call = (name, given) => {
      calls.push([name, ...given]);
      return { width: 7 * String(given[0]).length };
    };
    const pen = new Proxy(kept, { get: (_, name) => kept[name] ?? ((...given) => call(name, given)) });
    canvases.push({ style: {}, calls, getContext: () => pen });
    return canvases.at(-1);
  };
  t.after(() => delete globalThis.document);
  globalThis.document = { createElement: canvas };
  return [canvas, canvases];
}

test("a line parts what is given from what is to be written, wherever that stands", (t) => {
  const [make, made] = recorded(t);
  const canvas = new Grid(make());
  const [{ calls }] = made;
  const [n, columns, cells] = [17, 5, Array.from({ length: 17 }, (_, p) => p)];
  const inside = (cell) => (cell >= 0 && cell < 7) || cell === 11;
  canvas.resize(n, 300, { pins: [], scale: ["#000000", "#ffffff"] }, { ratio: 1 });
  const view = { lane: { steps: [] }, step: 0, states: cells.map(() => 1), tokens: cells, other: null, labels: [] };
  canvas.draw({ ...view, given: cells.map((p) => Number(inside(p))), fresh: false, hover: -1, pins: new Map() });
  const starts = calls.flatMap(([name, , , width], i) => (name === "clearRect" && width === 60 ? [i] : []));
  const drawn = starts.map((start, cell) => {
    const own = calls.slice(start + 1, starts[cell + 1]);
    const [left, top] = [(cell % columns) * 60, Math.floor(cell / columns) * 26];
    const lines = own.flatMap(([name, ...from], i) => (name === "moveTo" ? [[from, own[i + 1].slice(1)]] : []));
    return lines
      .map(([[x, y], [, end]]) => (y === end ? "tb"[Number(y > top + 13)] : "lr"[Number(x > left + 30)]))
      .join("");
  });
  const expected = cells.map((cell) => {
    const column = cell % columns;
    const around = { t: inside(cell - columns), b: inside(cell + columns) };
    Object.assign(around, { l: column > 0 && inside(cell - 1), r: column < columns - 1 && inside(cell + 1) });
    return Object.keys(around)
      .filter((side) => around[side] !== inside(cell))
      .join("");
  });
  assert.deepEqual(drawn, expected);
});

test("marks and a pin's number leave the letters free, in the lowest cells too, and blocks are parted", (t) => {
  const [canvas] = recorded(t);
  for (const tall of [Infinity, 215]) {
    const main = canvas();
    const grid = new Grid(main);
    grid.resize(142, 358, { pins: ["a"], scale: ["#000000", "#ffffff"] }, { ratio: 1, tall });
    const all = Array.from({ length: 142 }, (_, p) => p);
    const lane = { steps: [{ locked: [], unmasked: all, written: [] }] }; // over the glow the word is drawn last
    const view = { lane, step: 0, states: new Array(142).fill(1), fresh: true, hover: -1 };
    const [tokens, other] = [new Array(142).fill(1), new Array(142).fill(2)];
    const labels = new Array(142).fill("girl");
    const drawn = (more) => {
      main.calls.length = 0;
      grid.looks = null;
      grid.draw({ ...view, tokens, other, labels, given: new Uint8Array(142), pins: new Map(), ...more });
      return main.calls;
    };
    const calls = drawn({ pins: new Map([[7, 0]]) });
    const marks = calls.filter(([name]) => name === "fillRect").map((each) => each.slice(1));
    assert.equal(marks.length, 142 + 1);
    const size = Math.max(...[...grid.fits.values()].map((fit) => fit.size));
    const words = calls.filter(([name, text]) => name === "fillText" && text === "girl");
    assert.equal(words.length, 142);
    for (const [, , x, y, most] of words) {
      const half = Math.min(28, most) / 2;
      for (const [left, top, width, height] of marks) {
        const apart = [x - half - left - width, y - size / 2 - top - height, left - x - half, top - y - size / 2];
        assert.ok(Math.max(...apart) >= -0.5, `${[left, top, width, height]} over ${[x, y, half, size]}`);
      }
    }
    assert.equal(drawn({ other: null }).filter(([name]) => name === "lineTo").length, 0);
    const lines = drawn({ other: null, block: 20 }).filter(([name]) => name === "lineTo").length;
    assert.ok(lines >= 7 * grid.box.columns && lines % 2 === 0, "on both sides");
  }
});

test("each look of a cell is another one, and what looks as before is not drawn", (t) => {
  const [canvas] = recorded(t);
  const main = canvas();
  const grid = new Grid(main);
  grid.resize(1, 100, { pins: ["a", "b"], scale: ["#000000", "#ffffff"] }, { ratio: 1 });
  const looks = new Set();
  let count = 0;
  const given = [0];
  const ages = [[], [[2, 0]], [[1, 0]], [[0, 0]], [[0, 1]], [[1, 1]], [[0, 2]], [[2, 2]]]; // [how long ago, 0: written, 1: locked, 2: masked]
  for (const pin of [undefined, 0, 1])
    for (const hover of [-1, 0])
      for (const other of [1, 2])
        for (const age of ages)
          for (const state of [0, 1, 2, 3, 4])
            for (const [value, faint] of [NaN, 0, 1].flatMap((each) => [0, 1, 4].map((level) => [each, level]))) {
              const steps = [0, 1, 2].map((step) => {
                const now = (kind) => (age.some(([ago, what]) => 2 - ago === step && what === kind) ? [0] : []);
                return { unmasked: now(0), locked: now(1), masked: now(2), written: [] };
              });
              const pins = new Map(pin === undefined ? [] : [[0, pin]]);
              const view = { lane: { steps }, step: 2, states: [state], values: [value], tokens: [1], other: [other] };
              const drawn = () => {
                main.calls.length = 0;
                grid.draw({ ...view, given, labels: ["a"], faint: [faint], fresh: true, hover, pins });
                return main.calls.filter(([name]) => name === "clearRect").length;
              };
              assert.equal(drawn(), count++ ? 1 : 2, "the first time on a canvas that is cleared");
              assert.equal(drawn(), 0);
              looks.add(grid.looks[0]);
            }
  assert.equal(looks.size, count);
});

test("a guess stands faintly in a masked cell that the step computed, the stronger the likelier, and in no other", (t) => {
  const guess = base64(12, 0, 11, 0); // of positions 2 and 3, before the step writes 2
  const made = raceOf([every("All", [{ unmasked: [[2, 12]], guess }, { unmasked: [] }])]);
  made.records[0].confidence = [1, 1, 0.9, 0.6];
  const trace = Trace.parse(made);
  const [lane] = trace.lanes;
  assert.deepEqual(labelsOf(trace, lane, 0, true).list, ["Once", "upon", "=a", "upon"]);
  assert.deepEqual([...labelsOf(trace, lane, 0, true).faint], [0, 0, 0, 3]);
  for (const [step, guesses] of [
    [-1, true],
    [0, false],
    [1, true],
  ]) {
    const { list, faint } = labelsOf(trace, lane, step, guesses);
    assert.deepEqual([list[3], ...faint], ["", 0, 0, 0, 0]);
  }
  assert.match(cellText(trace, lane, 3, 0, true), /masked.*, now “upon” \(60 %\)$/);
  const [canvas] = recorded(t);
  const main = canvas();
  const grid = new Grid(main);
  grid.resize(4, 300, { pins: [], scale: ["#000000", "#ffffff"] }, { ratio: 1 });
  const { tokens, list, faint } = labelsOf(trace, lane, 0, true);
  grid.draw({ lane, step: 0, tokens, other: null, labels: list, faint, given: trace.given });
  assert.deepEqual(
    main.calls.filter(([name]) => name === "fillText").map(([, text]) => text),
    ["upon"],
  );
});
