import assert from "node:assert/strict";
import test from "node:test";

import { Waiting } from "../../assets/js/waiting.js";

test("what the queue refuses waits no longer, and whoever asked for it is told", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  globalThis.document = { getElementById: () => ({ textContent: "Error" }) };
  const told = [];
  const waiting = new Waiting({ say: () => {}, refused: (why) => told.push(why), seconds: async () => null });
  waiting.begin();
  assert.deepEqual([waiting.on, told], [true, []]);
  t.mock.timers.tick(1000);
  assert.equal(waiting.on, false);
  assert.deepEqual(told, ["The server refused this run; its message is in the corner of the page."]);
});
