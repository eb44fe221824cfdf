import assert from "node:assert/strict";
import test from "node:test";

import { CellCurve } from "../../assets/js/curves/cellcurve.js";
import { writtenMedians } from "../../assets/js/curves/curves.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { onPage } from "./page.js";
import { small } from "./small.js";

test("a position's KL is drawn on one scale, with a diamond where it locks and a line where each lane stands", (t) => {
  onPage(t);
  const curve = new CellCurve();
  const trace = Trace.parse(small());
  curve.load(trace);
  const texts = curve.axis.children.filter(({ tag }) => tag === "text");
  assert.deepEqual(
    texts.map(({ attributes: { x, y }, children: [text] }) => [text, x, Math.round(y)]),
    [
      ["1e-8", 30, 108],
      ["1e-4", 30, 68],
      ["1", 30, 27],
      ["step 1", 34, 127],
      ["step 3", 314, 127],
    ],
  );
  const lines = curve.axis.children.filter(({ tag }) => tag === "line").map(({ attributes }) => attributes);
  assert.deepEqual(
    lines.map(({ x1, x2, y1, y2 }) => [x1, x2, Math.round(y1), y2 - y1]),
    [104, 64, 23].map((y) => [34, 314, y, 0]),
  );
  curve.draw(1, 1);
  const drawn = curve.lines.children.map(({ children: [line, ...locks] }) => [
    line.attributes.d,
    line.attributes["stroke-dasharray"],
    ...locks.map(({ attributes: { d } }) => d.replace(/\.\d+/, "")),
  ]);
  assert.deepEqual(drawn, [
    ["M174.0,23.1L314.0,23.1", "7 4"],
    ["M34.0,114.0L174.0,26.2", "", "M174,20l6,6l-6,6l-6,-6z"],
  ]);
  const stands = () => curve.cursors.children.map(({ style: { visibility, transform } }) => visibility || transform);
  assert.deepEqual(stands(), ["translateX(174px)", "translateX(174px)"]);
  curve.draw(1, -1);
  assert.deepEqual(stands(), ["hidden", "hidden"]);
  curve.picture.getBoundingClientRect = () => ({ top: 50, height: 264 });
  for (const power of [-9, -3.5, 1.5]) {
    const at = curve.place(10 ** power);
    assert.ok(Math.abs(curve.power(50 + 264 * at) - power) < 1e-9);
  }
});

test("the line of a position is interrupted at a step that did not compute it", (t) => {
  onPage(t);
  const curve = new CellCurve();
  const trace = Trace.parse(small());
  const [lane] = trace.lanes;
  for (const [step, nats] of [1, NaN, 1].entries()) lane.kl[step * lane.n + 1] = nats;
  curve.load(trace);
  curve.draw(1, 1);
  const [line] = curve.lines.children[0].children;
  assert.equal(line.attributes.d, "M34.0,23.1M314.0,23.1");
});

test("the medians of a lane that still runs grow with its steps, to those of the whole lane", () => {
  const { records, ...header } = small();
  const [whole] = Trace.parse(small()).lanes;
  const live = new Trace({ ...header, records: [] });
  for (const record of records) {
    live.append(record);
    const [lane] = live.lanes;
    assert.deepEqual(writtenMedians(lane), writtenMedians(whole).slice(0, lane.count));
  }
});
