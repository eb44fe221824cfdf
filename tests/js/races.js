// Repeats the race of a file that tests/test_web_race.py wrote, on its readings: node tests/js/races.js FILE. Prints
// the stream's messages, the document and the likely tokens that were asked for.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { race } from "../../assets/js/decode/race.js";
import { Recorder } from "../../assets/js/decode/recorder.js";
import { unpacked } from "./packed.js";

const { shape, header, pieces, readings, asked } = JSON.parse(readFileSync(process.argv[2], "utf8"));

/** Hands out, lane by lane, what was found before. */
const engine = {
  lanes: 0,
  memory() {
    return { left: [...readings[this.lanes++]] };
  },
  read: async ({ left }, plan) => {
    const { asked, found } = left.shift();
    for (const [name, told] of Object.entries(unpacked(asked))) assert.deepEqual(plan[name], told, name);
    return unpacked(found);
  },
  logits: async ({ left }) => unpacked(left.shift()),
};
const recorder = new Recorder(header, (ids) => Object.fromEntries(ids.map((id) => [id, pieces[id]])));
const messages = [recorder.start()];
for await (const told of race(engine, shape, header.prompt_tokens, header.lanes))
  if (told.length) messages.push(recorder.take(told));
const tops = asked.map((place) => recorder.top(...place));
console.log(JSON.stringify({ messages, document: recorder.document(), tops }));
