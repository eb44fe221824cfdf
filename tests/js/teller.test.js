import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { onPage } from "./page.js";
import { RANDOM } from "./small.js";

const NAMES = ["Blanks", "First lock", "Fork", "Half locked"];
const BEHIND = 2;

/** A teller on a clock of its own, beside a race that rests where the teller says so. */
async function telling(t) {
  onPage(t);
  const { Teller } = await import("../../assets/js/stage/teller.js");
  const state = { now: 0, told: [] };
  t.mock.method(performance, "now", () => state.now);
  const teller = new Teller();
  /** The cursor at a step; what stands is noted with the step that it is about. */
  const follow = (step, more = {}) => {
    const moments = momentsAt(state.steps);
    const told = { now: () => `now ${step}`, held: false, moves: true, ends: false, over: false, moments, ...more };
    const about = teller.follow(step, told);
    const { textContent: text } = teller.text;
    assert.equal(about === null, text === "");
    if (about === null) return;
    assert.ok(step - about >= 0 && step - about <= BEHIND, `step ${step}: ${text}, of step ${about}`);
    if (state.told.at(-1)?.[1] !== text) state.told.push([state.now, text]);
  };
  return { teller, state, follow };
}

const momentsAt = (steps) => NAMES.map((name, i) => ({ name, step: steps[i], sentence: () => name }));

test("at any pace every moment is told in its order and stands, and no sentence is about a step that is far behind", async (t) => {
  const race = fc.record({
    steps: fc.array(fc.nat(62), { minLength: 3, maxLength: 3 }),
    pace: fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 64, maxLength: 64 }),
  });
  await fc.assert(
    fc.asyncProperty(race, async ({ steps, pace }) => {
      const { teller, state, follow } = await telling(t);
      state.steps = [-1, ...steps.toSorted((a, b) => a - b)];
      const twice = [0, 1].flatMap(() => Array.from({ length: 65 }, (_, i) => i - 1));
      for (const step of twice) {
        state.now += 50 * pace[Math.max(0, step)];
        follow(step);
        while (teller.rest > 0) {
          state.now += teller.rest;
          follow(step); // where a rest is over, another sentence about the same step may stand
        }
      }
      const lives = state.told.slice(1).map(([since], i) => since - state.told[i][0]);
      assert.ok(Math.min(...lives) >= 2500, `${lives}`);
      const order = state.told.map(([, text]) => text).filter((text) => NAMES.includes(text));
      assert.deepEqual(order, [...NAMES, ...NAMES], "a race that is played again is told again");
      follow(64, { over: true, moves: false });
      assert.equal(teller.text.textContent, "", "after the end there is the verdict and nothing else");
    }),
    { ...RANDOM, numRuns: 40 },
  );
});

test("a hand that puts the cursor somewhere is told of that step at once; what is about a lane goes with its end", async (t) => {
  const { teller, state, follow } = await telling(t);
  state.steps = [-1, 5, 20, 30];
  follow(-1);
  state.now += 100;
  follow(25, { held: true, moves: false });
  assert.equal(teller.text.textContent, "now 25");
  state.now += 3000;
  follow(26, { ends: true });
  assert.equal(teller.text.textContent, "");
  for (let step = 27; step <= 40; step++) {
    state.now += 300;
    follow(step);
    while (teller.rest > 0) {
      state.now += teller.rest;
      follow(step);
    }
  }
  const told = state.told.map(([, text]) => text);
  assert.ok(told.includes("Half locked") && !told.includes("Fork"), `${told}`);
  teller.load();
  follow(63, { moves: false });
  assert.equal(teller.text.textContent, "now 63", "what stands at its end tells of that");
});
