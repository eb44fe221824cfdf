import assert from "node:assert/strict";
import test from "node:test";
import { Sight } from "../../assets/js/stage/sight.js";

test("words out of sight are at most a second behind while the cursor moves", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const part = {};
  globalThis.IntersectionObserver = class {
    constructor(f) {
      this.f = f;
    }
    observe() {
      this.f([{ isIntersecting: false }]);
    }
  };
  let redrawn = 0;
  const sight = new Sight(() => redrawn++);
  sight.watch([part]);
  assert.ok(sight.has(part), "at rest all is drawn");
  sight.begin(false);
  assert.ok(sight.has(part) && sight.reads(part));
  const read = [];
  for (now = 40; now <= 4000; now += 40) {
    sight.begin(true);
    assert.ok(!sight.has(part), "pictures that nobody sees wait");
    if (sight.reads(part)) read.push(now);
    t.mock.timers.tick(40);
  }
  assert.deepEqual([read, redrawn], [[1000, 2000, 3000, 4000], 0]);
  t.mock.timers.tick(150);
  assert.equal(redrawn, 1);
});
