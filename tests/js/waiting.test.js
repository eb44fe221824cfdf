import assert from "node:assert/strict";
import test from "node:test";

import { page } from "../../assets/js/run/state.js";
import { about, Waiting } from "../../assets/js/run/waiting.js";

const flush = () => new Promise((then) => setImmediate(then));

test("a place in the queue is said with how long it takes, and nothing where the device is free", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const tick = async (ms) => {
    now += ms;
    t.mock.timers.tick(ms);
    await flush();
  };
  const said = [];
  const end = page.follow(["waits", "waiting"], ({ waits, waiting }) => said.push([waits, waiting]));
  const waiting = new Waiting({ seconds: async (place) => 10 * place });
  waiting.begin("run");
  waiting.at(1);
  await tick(100);
  waiting.at(0); // its turn
  await tick(900);
  assert.deepEqual(said, [
    [null, ""],
    ["run", ""],
  ]);
  waiting.at(12);
  await tick(0);
  waiting.at(1);
  await tick(0);
  waiting.at(1); // told again: so is the time
  await tick(0);
  waiting.end();
  waiting.at(1); // what was on its way
  waiting.end();
  await tick(900);
  const told = (count, long) => `Waiting for the device: ${count} before yours, about ${long}.`;
  assert.deepEqual(said.slice(2), [
    ["run", told("12 runs", "2 min")],
    ["run", told("1 run", "10 s")],
    [null, ""],
  ]);
  end();
});

test("an estimate is told no better than to five seconds", () => {
  assert.deepEqual([null, undefined, Number.NaN, 0, 4.9, 5, 12.4, 12.5, 89, 90, 150].map(about), [
    "",
    "",
    "",
    ", a few seconds",
    ", a few seconds",
    ", about 5 s",
    ", about 10 s",
    ", about 15 s",
    ", about 90 s",
    ", about 2 min",
    ", about 3 min",
  ]);
});
