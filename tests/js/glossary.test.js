import assert from "node:assert/strict";
import test from "node:test";
import { GLOSSARY } from "../../assets/js/glossary.js";
import { pinName } from "../../assets/js/pins.js";
import { shade } from "../../assets/js/theme.js";
import { Trace } from "../../assets/js/trace.js";
import { small } from "./small.js";

test("every term is told in one sentence", () => {
  for (const [name, sentence] of Object.entries(GLOSSARY)) assert.match(sentence, /^[A-Z][^.]+\.$/, name);
});

test("a pin is called by its word, by both words where lanes differ, by its place while it is masked", () => {
  const trace = Trace.parse(small());
  assert.equal(pinName(trace, 1), "“upon” (1)");
  assert.equal(pinName(trace, 3), "“C3” / “A9” (3)");
  assert.equal(pinName(new Trace(small()), 3), "position 3");
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
