import assert from "node:assert/strict";
import test from "node:test";

import { Drawer } from "../../assets/js/cause/drawer.js";

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
