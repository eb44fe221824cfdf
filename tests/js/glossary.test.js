import assert from "node:assert/strict";
import test from "node:test";
import { shade } from "../../assets/js/stage/theme.js";
import { pinName } from "../../assets/js/trace/prose.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { small } from "./small.js";

test("a pin is called by its word, by both words where lanes differ, by its place while it is masked", () => {
  const trace = Trace.parse(small());
  assert.equal(pinName(trace, 1), "“upon” (1)");
  assert.equal(pinName(trace, 3), "“C3” / “A9” (3)");
  assert.equal(pinName(new Trace(small()), 3), "position 3");
  assert.equal(pinName(trace, 4), "position 4", "of no lane");
  assert.equal(pinName(trace, 3, { of: [trace.lanes[0]] }), "“C3” (3)");
  assert.equal(pinName(trace, 3, { at: () => 0 }), "position 3");
  const [named, pieces] = [{ n: 4, token: () => 0 }, { name: (id) => ` ${id} ` }];
  assert.equal(pinName(Object.assign(Object.create(Trace.prototype), { lanes: [named], pieces }), 3), "“0” (3)");
});

test("a scale goes through its colours, and what is written on it can be read", () => {
  const scale = ["#000000", "#808080", "#ffffff"];
  assert.deepEqual(
    [0, 0.25, 0.5, 1].map((x) => shade(scale, x).fill),
    ["#000000", "#404040", "#808080", "#ffffff"],
  );
  assert.deepEqual(
    [0, 1].map((x) => shade(scale, x).ink),
    ["#ffffff", "#101522"],
  );
});
