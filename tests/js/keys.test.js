import assert from "node:assert/strict";
import test from "node:test";

import { timelineKeys } from "../../assets/js/keys.js";

test("a box that scrolls keeps the arrows, Home and End; Space still plays", () => {
  const listeners = [];
  globalThis.document = { addEventListener: (type, f) => type === "keydown" && listeners.push(f) };
  const done = [];
  const note = (name) => (value) => done.push([name, value]);
  timelineKeys({ toggle: note("toggle"), move: note("move"), seek: note("seek") });
  const press = (...own) => {
    done.length = 0;
    const target = { matches: (selectors) => selectors.split(", ").some((each) => own.includes(each)) };
    for (const key of [" ", "ArrowRight", "Home"]) for (const f of listeners) f({ key, target, preventDefault() {} });
    return done.map(([name]) => name);
  };
  assert.deepEqual(press(), ["toggle", "move", "seek"]);
  assert.deepEqual(press("[role=region][tabindex]"), ["toggle"]);
});
