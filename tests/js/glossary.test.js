import assert from "node:assert/strict";
import test from "node:test";
import { lockedText } from "../../assets/js/panels/analysis.js";
import { GLOSSARY } from "../../assets/js/panels/glossary.js";
import { PIN_COLOURS, palette, shade } from "../../assets/js/stage/theme.js";
import { pinName } from "../../assets/js/trace/prose.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { small } from "./small.js";

test("every term is told in one sentence", () => {
  for (const [name, sentence] of Object.entries(GLOSSARY)) assert.match(sentence, /^[A-Z][^.]+\.$/, name);
});

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

test("the ink on a colour is black or white, whichever stands out more", () => {
  const grey = (x) => shade(["#000000", "#ffffff"], x);
  assert.deepEqual(
    [grey(117 / 255), grey(118 / 255)].map(({ ink }) => ink),
    ["#ffffff", "#101522"],
  );
  const inks = ["#ff0000", "#00ff00", "#0000ff", "#0a0a0a"].map((colour) => shade([colour, colour], 0.5));
  assert.deepEqual(
    inks.map(({ ink }) => ink),
    ["#101522", "#101522", "#ffffff", "#ffffff"],
  );
  assert.deepEqual(
    inks.map(({ fill }) => fill),
    ["#ff0000", "#00ff00", "#0000ff", "#0a0a0a"],
  );
});

test("the palette is the stylesheet's, by name", () => {
  const asked = [];
  globalThis.OffscreenCanvas = class {
    getContext() {}
  };
  globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => ` #${asked.push(name)}` });
  try {
    const colours = palette(null);
    const of = (name) => `#${asked.indexOf(`--sl-${name}`) + 1}`;
    const names =
      "masked masked-dot active active-ring active-text locked locked-hatch locked-text prompt differs fresh fresh-lock";
    const others =
      "ink muted panel line resting resting-ring raster-masked raster-active raster-locked raster-resting raster-waiting";
    for (const name of `${names} ${others}`.split(" "))
      assert.equal(colours[name.replace(/-(.)/, (_, letter) => letter.toUpperCase())], of(name), name);
    const list = (name, n) => Array.from({ length: n }, (_, i) => of(`${name}-${i + 1}`));
    assert.deepEqual(
      [colours.lanes, colours.scale, colours.pins],
      [list("lane", 4), list("scale", 5), list("pin", PIN_COLOURS)],
    );
    assert.ok(!Object.values(colours).flat().includes("#0"));
  } finally {
    delete globalThis.OffscreenCanvas;
    delete globalThis.getComputedStyle;
  }
});

test("one position that is locked is spoken of as one", () => {
  assert.equal(lockedText([]), "Nothing has locked.");
  assert.equal(lockedText([3]), "1 position is locked, within 3 steps of being written.");
  assert.match(lockedText([1, 1, 4]), /^3 positions are locked; half of them within 1 step of being written\.$/);
});
