// What a visitor does again on one page: a second run in a lesson, a file that was damaged and comes corrected.

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { open, STORIES, settled } from "./browser.js";
import { numbers, RANDOM, small } from "./small.js";

const STOP = Math.ceil(0.15 * STORIES.header.steps) - 1; // where the lesson's page about runs stops, see assets/lessons/

/** In a lesson runs of one's own are made, come, end, fail and are left for the recorded one, in any order. */
async function lesson(list) {
  const { source, stage, surelock, pass } = await open("?lesson=unmasking&page=2");
  const { lessons } = stage;
  assert.equal(lessons.page, 1);
  const press = (text) =>
    [...lessons.card.querySelectorAll("button")].find((each) => each.textContent === text).click();
  let run = null; // {handle, sent, open}
  const moves = {
    make: [
      () => lessons.page === 1 && surelock.page.now.waits === null,
      async () => {
        press("Make my own run");
        await settled();
        run = { handle: source.asked.at(-1), sent: 0, open: false };
      },
    ],
    open: [
      () => run && !run.open,
      () => {
        const { header, pieces } = structuredClone(STORIES);
        run.handle.send({ run: `r${source.asked.length}`, open: { header, pieces }, pausable: true });
        run.open = true;
      },
    ],
    records: [
      () => run?.open && run.sent < 128,
      (n) => {
        const until = Math.min(128, run.sent + 1 + (n % 60));
        const records = STORIES.records.filter(({ step }) => step >= run.sent && step < until);
        run.handle.send({ pieces: {}, records: structuredClone(records) });
        run.sent = until;
      },
    ],
    lose: [
      () => run?.open,
      () => {
        run.handle.send({ lost: "The connection was lost." });
        run = null;
      },
    ],
    finish: [
      () => run?.sent === 128,
      () => {
        run.handle.send({ end: "finished", problem: null });
        run = null;
        assert.equal(lessons.page, 2, "the question is about it");
        assert.equal(stage.trace, lessons.trace);
      },
    ],
    back: [() => lessons.page === 2, () => press("Back")],
    stay: [() => lessons.page === 1 && !run, () => press("Stay with this run")],
  };
  for (const n of list) {
    const able = Object.values(moves).filter(([can]) => can());
    await able[n % able.length][1](Math.floor(n / able.length));
    await pass(40);
    const { race } = stage.trace;
    if (lessons.page === 1 && run?.open && stage.trace.count) {
      const { step } = surelock.page.now;
      assert.ok(step <= Math.max(STOP, 0), `the cursor is at step ${step} of a run that stops at ${STOP}`);
    }
    if (lessons.page === 2 && !race.live) assert.equal(surelock.page.now.step, STOP, "a page goes to its step");
  }
}

test("in a lesson each run of one's own stops where its page does, and the question is about the latest", async () => {
  await fc.assert(fc.asyncProperty(numbers(24), lesson), { ...RANDOM, numRuns: 8 });
});

const DAMAGED = "This file ends in the middle: it was cut short on its way.";
const TOO_LARGE = "This file is too large to be a trace (over 200 MB).";

/** Files are opened, damaged, too large and whole, often under the same name: of the same name a browser tells nothing. */
async function files(list) {
  const { stage, window, find, pass } = await open("", { recorded: small() });
  const input = find("#sl-import");
  Object.defineProperty(input, "value", { value: "", writable: true });
  let [count, told] = [1, ""];
  for (const n of list) {
    const name = `${n % 2}.json`;
    const whole = n % 4 > 1;
    const text = whole ? JSON.stringify(small()) : "{damaged";
    const size = n % 4 ? text.length : 2 ** 28;
    if (input.value !== name) {
      Object.defineProperty(input, "files", {
        value: [{ size, text: async () => text }],
        configurable: true,
      });
      input.value = name;
      input.dispatchEvent(new window.Event("change"));
    }
    await pass(10);
    if (whole) count++;
    const refusal = n % 4 ? DAMAGED : TOO_LARGE;
    told = whole ? "Opened." : refusal;
    assert.equal(find(".sl-share > .sl-hint").textContent, told);
    assert.equal(stage.runs.entries.at(-1).number, count);
    if (n % 5 === 0) {
      const { trace } = stage;
      stage.panels.runs.draw();
      find("[aria-label^='Show run']").click();
      const there = trace === stage.trace ? told : "";
      assert.equal(find(".sl-share > .sl-hint").textContent, there, "what is said of a run goes with it");
    }
  }
}

test("a file is read whenever it is chosen, also after it was damaged", async () => {
  await fc.assert(fc.asyncProperty(numbers(12), files), { ...RANDOM, numRuns: 10 });
});
