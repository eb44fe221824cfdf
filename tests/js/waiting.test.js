import assert from "node:assert/strict";
import test from "node:test";

import { Waiting } from "../../assets/js/waiting.js";

test("what the queue refuses waits no longer, and whoever asked for it is told", (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  globalThis.document = { getElementById: () => ({ textContent: "Fehler", querySelector: () => ({}) }) };
  const told = [];
  const waiting = new Waiting({ say: () => {}, refused: (why) => told.push(why), seconds: async () => null });
  waiting.begin("run");
  assert.deepEqual([waiting.on, told], [true, []]);
  t.mock.timers.tick(301); // what left the queue before is told as an error, too
  assert.equal(waiting.on, true);
  t.mock.timers.tick(700);
  assert.equal(waiting.on, false);
  assert.deepEqual(told, ["The server refused this run; its message is in the corner of the page."]);
});
