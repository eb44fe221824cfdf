import assert from "node:assert/strict";
import test from "node:test";

import { stopButton } from "../../assets/js/form/controls.js";

const idle = { phase: "idle", pending: null, waits: null, place: 0 };

test("the button that ends a run says what it does, and that it has been pressed", () => {
  const told = (now) => Object.values(stopButton({ ...idle, ...now }));
  assert.deepEqual(told({}), ["Stop", true]);
  assert.deepEqual(told({ waits: "run" }), ["Cancel", false]);
  assert.deepEqual(told({ phase: "running" }), ["Stop", false]);
  assert.deepEqual(told({ phase: "running", pending: "stop" }), ["Stopping …", true]);
  assert.deepEqual(told({ phase: "running", pending: "pause" }), ["Stop", false]);
  assert.deepEqual(told({ phase: "paused", waits: "more", place: 0 }), ["Stop", false]);
  assert.deepEqual(told({ phase: "paused", waits: "more", place: 2 }), ["Cancel", false]);
});
