// Repeats the race of tests/test_web_race.py, on its readings: `node tests/js/races.js` prints the stream's
// messages, the document and the likely tokens that were asked for.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { race } from "../../assets/js/decode/race.js";
import { Recorder } from "../../assets/js/decode/recorder.js";
import { unpacked } from "./packed.js";

const { shape, header, pieces, readings, asked } = JSON.parse(readFileSync(0, "utf8"));

let now = 0;
globalThis.performance = { now: () => ++now }; // planning takes a millisecond, and so does deciding

/** Hands out, lane by lane, what was found before. Whatever it waits for and observes, a step took what it says. */
const engine = {
  lanes: 0,
  memory() {
    return { lane: this.lanes, left: [...readings[this.lanes++]] };
  },
  read: async ({ lane, left }, plan) => {
    const { asked, found } = left.shift();
    for (const [name, told] of Object.entries(unpacked(asked))) assert.deepEqual(plan[name], told, name);
    now += 500;
    return { ...unpacked(found), seconds: secondsOf(lane, plan.step) };
  },
  logits: async ({ left }) => {
    now += 300;
    return unpacked(left.shift());
  },
};
const secondsOf = (lane, step) => Number((0.1 + 0.01 * lane + 0.001 * step).toFixed(7));
const recorder = new Recorder(header, (ids) => Object.fromEntries(ids.map((id) => [id, pieces[id]])));
const messages = [recorder.start()];
for await (const told of race(engine, shape, header.prompt_tokens, header.lanes))
  if (told.length) messages.push(recorder.take(told));
const ids = header.lanes.map(({ id }) => id);
for (const { lane, step, seconds } of recorder.document().records)
  assert.equal(
    seconds,
    Number((secondsOf(ids.indexOf(lane), step) + 0.002).toFixed(7)),
    `seconds of ${lane} in step ${step}`,
  );
const tops = asked.map((place) => recorder.top(...place));
console.log(JSON.stringify({ messages, document: recorder.document(), tops }));
