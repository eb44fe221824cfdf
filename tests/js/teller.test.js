import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { onPage } from "./page.js";
import { RANDOM } from "./small.js";

const NAMES = ["Blanks", "First lock", "Fork", "Half locked", "Verdict"];

/** A teller on a clock of its own, and what it shows: [[milliseconds, sentence], ...]. */
async function telling(t) {
  onPage(t);
  t.mock.timers.reset();
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { Teller } = await import("../../assets/js/stage/teller.js");
  const state = { now: 0, told: [] };
  t.mock.method(performance, "now", () => state.now);
  const teller = new Teller();
  const note = () => {
    const text = teller.text.textContent;
    if (text && state.told.at(-1)?.[1] !== text) state.told.push([state.now, text]);
  };
  const pass = (ms) => {
    for (const end = state.now + ms; state.now < end; note()) {
      state.now += 50;
      t.mock.timers.tick(50);
    }
  };
  const follow = (step, more = {}) => {
    const now = () => `now ${step}`;
    teller.follow(step, { now, held: false, moves: true, moments: momentsAt(state.steps), ...more });
    note();
  };
  return { teller, state, pass, follow };
}

const momentsAt = (steps) => NAMES.map((name, i) => ({ name, step: steps[i], sentence: () => name }));

test("at any pace every moment is told in its order and stands, and others only now and then", async (t) => {
  const race = fc.record({
    steps: fc.array(fc.nat(63), { minLength: 3, maxLength: 3 }),
    pace: fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 64, maxLength: 64 }),
  });
  await fc.assert(
    fc.asyncProperty(race, async ({ steps, pace }) => {
      const { state, pass, follow } = await telling(t);
      state.steps = [-1, ...steps.toSorted((a, b) => a - b), 63];
      follow(-1);
      for (let step = 0; step < 64; step++) {
        pass(50 * pace[step]);
        follow(step, { moves: step < 63 });
      }
      pass(15_000);
      const lives = state.told.map(([since], i) => (state.told[i + 1]?.[0] ?? Infinity) - since);
      assert.ok(Math.min(...lives) >= 2500, `${lives}`);
      const order = state.told.map(([, text]) => text).filter((text) => NAMES.includes(text));
      assert.deepEqual(order, NAMES);
      const [first] = state.told.filter(([, text]) => text === "Verdict");
      state.told.forEach(([since, text], i) => {
        if (text.startsWith("now")) assert.ok(since < first[0] && since - state.told[i - 1][0] >= 4000);
      });
    }),
    { ...RANDOM, numRuns: 40 },
  );
});

test("a hand that puts the cursor somewhere is told of that step at once, and of nothing that is behind it", async (t) => {
  const { teller, state, pass, follow } = await telling(t);
  state.steps = [-1, 5, 20, 30, 63];
  follow(-1);
  pass(100);
  follow(25, { held: true, moves: false });
  assert.equal(teller.text.textContent, "now 25");
  for (let step = 26; step <= 40; step++) {
    pass(300);
    follow(step);
  }
  const told = state.told.map(([, text]) => text);
  assert.deepEqual([told[2], told.includes("Fork")], ["Half locked", false]);
  teller.load();
  follow(63, { moves: false });
  assert.equal(teller.text.textContent, "now 63", "what stands at its end tells of that");
});
