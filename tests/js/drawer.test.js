import assert from "node:assert/strict";
import test from "node:test";

import { Drawer } from "../../assets/js/cause/drawer.js";
import { page } from "../../assets/js/run/state.js";
import { Cells } from "../../assets/js/stage/cells.js";

test("the progress of a lane goes with its own trace, and with no other", () => {
  const [own, other] = [{}, {}];
  const drawer = (child) =>
    Object.assign(Object.create(Drawer.prototype), { child, progress: { textContent: "step 3" } });
  const after = (child) => {
    const made = drawer(child);
    made.forget({ lanes: [own] });
    return [made.child, made.progress.textContent];
  };
  assert.deepEqual(after(own), [null, ""]);
  assert.deepEqual(after(other), [other, "step 3"]);
  assert.deepEqual(after(true), [true, "step 3"], "one that is being started");
});

test("a pin has the first colour that no other pin has", () => {
  const cells = Object.assign(Object.create(Cells.prototype), { stage: { onView() {}, say() {} } });
  page.set({ pins: new Map() });
  for (const cell of [5, 6, 7, 6, 8, 5, 9, 4]) cells.pin(cell);
  assert.deepEqual(
    [...page.now.pins],
    [
      [7, 2],
      [8, 1],
      [9, 0],
      [4, 3],
    ],
  );
});
