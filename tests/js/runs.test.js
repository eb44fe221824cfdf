import assert from "node:assert/strict";
import test from "node:test";

import { embedded } from "../../assets/js/embed.js";
import { moments } from "../../assets/js/handout.js";
import { raceSeconds, stepsAfter } from "../../assets/js/poster.js";
import { inOrder, told, usual } from "../../assets/js/runs.js";
import { Trace } from "../../assets/js/trace.js";
import { webm } from "../../assets/js/webm.js";
import { contestant, small } from "./small.js";

const lock = (id, epsilon, more) => contestant(id, id, { kind: "lock", epsilon, percentile: 20 }, more);

test("what differs from most stands out; what all share is told only of a contestant's own rules", () => {
  const longer = { settings: { gen_length: 4, steps: 3 } };
  const all = [contestant("x", "x", { kind: "everything" }), lock("a", 0.5), lock("b", 0.5), lock("c", 0.1, longer)];
  const common = usual(all);
  assert.deepEqual(told(all[0], common), [["gen_length 2", false]]);
  assert.deepEqual(told(all[3], common), [
    ["epsilon 0.1", true],
    ["percentile 20", false],
    ["gen_length 4", true],
  ]);
});

test("rows stand in the order of a column, those without a value last in both directions", () => {
  const trace = Trace.parse(small());
  const rows = trace.lanes.map((lane) => ({ entry: { trace, number: 1 }, lane }));
  const ids = (name, falling) => inOrder(rows, name, falling).map(({ lane }) => lane.id);
  assert.deepEqual(ids("Time", false), ["b", "a"]);
  assert.deepEqual(ids("Time", true), ["a", "b"]);
  assert.deepEqual(ids("Contestant", false), ["b", "a"]); // "=Locks", "All"
  assert.deepEqual(
    [ids("Speed", false), ids("Speed", true)],
    [
      ["b", "a"],
      ["b", "a"],
    ],
  ); // the reference has none
});

test("by the clock each lane has the steps that its own time allows", () => {
  const trace = Trace.parse(small());
  assert.equal(raceSeconds(trace), 3);
  assert.deepEqual(stepsAfter(trace, 0.9), [-1, -1]);
  assert.deepEqual(stepsAfter(trace, 2), [1, 2]);
  assert.deepEqual(stepsAfter(trace, 3), [2, 2]);
});

test("a handout shows three moments, fewer of a short run", () => {
  assert.deepEqual(moments(128), [42, 84, 127]);
  assert.deepEqual(moments(1), [0]);
});

test("an embedded page shows the step and the lanes that are asked for", () => {
  const trace = Trace.parse(small());
  const how = (query) => embedded(trace, new URLSearchParams(query));
  assert.deepEqual(how("embed"), { trace, step: undefined, play: true });
  assert.deepEqual(how("embed&step=2"), { trace, step: 1, play: false });
  for (const [step, shown] of [
    ["0", 0],
    ["99", 2],
  ])
    assert.equal(how(`embed&step=${step}`).step, shown);
  for (const step of ["-1", "x", "1.5", ""]) assert.equal(how(`embed&step=${step}`).play, true);
  const one = how("embed&lanes=1").trace;
  assert.deepEqual([one.lanes, one.reference, trace.lanes.length], [[trace.lanes[1]], trace.lanes[1], 2]);
});

test("a video file says its length, and each frame its time", () => {
  const frames = [0, 83, 4000].map((ms) => ({ ms, key: ms !== 83, data: new Uint8Array([ms % 256]) }));
  const file = Buffer.concat(webm(frames, { width: 1280, height: 720, ms: 4083 }));
  assert.equal(file.subarray(0, 4).toString("hex"), "1a45dfa3");
  assert.equal(file.readDoubleBE(file.indexOf("4489", "hex") + 10), 4083);
  const blocks = [];
  for (let at = file.indexOf("1f43b675", "hex"); at >= 0; at = file.indexOf("1f43b675", at + 1, "hex")) blocks.push(at);
  assert.equal(blocks.length, 2); // one cluster a key frame
  assert.equal(file.readBigUInt64BE(blocks[0] + 4) & 0xffn, 13n + 2n * 14n); // its time, and two blocks of one byte each
});
