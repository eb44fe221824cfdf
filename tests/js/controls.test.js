import assert from "node:assert/strict";
import test from "node:test";

import { where } from "../../assets/js/form/actions.js";
import { stopButton } from "../../assets/js/form/controls.js";
import { page } from "../../assets/js/run/state.js";
import { onPage } from "./page.js";

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

test("where Run computes is said as it is: a typed rule runs in this browser, whatever is chosen", (t) => {
  onPage(t);
  globalThis.matchMedia = () => ({ matches: false });
  page.set({ sources: ["server", "browser"], source: "server", typed: false });
  const choice = where(() => true);
  const told = () => [choice.value, Boolean(choice.disabled)];
  assert.deepEqual(told(), ["server", false]);
  page.set({ typed: true });
  assert.deepEqual(told(), ["browser", true]);
  page.set({ typed: false, source: "browser" });
  assert.deepEqual(told(), ["browser", false]);
});
