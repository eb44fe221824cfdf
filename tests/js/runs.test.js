import assert from "node:assert/strict";
import test from "node:test";

import { readAddress, sameSettings, settingsOf, settingsOfForm, writeAddress } from "../../assets/js/address.js";
import { embeddedLanes } from "../../assets/js/embed.js";
import { moments } from "../../assets/js/handout.js";
import { stepsAfter } from "../../assets/js/poster.js";
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
  assert.equal(trace.pacemaker.seconds, 3);
  assert.deepEqual(stepsAfter(trace, 0.9), [-1, -1]);
  assert.deepEqual(stepsAfter(trace, 2), [1, 2]);
  assert.deepEqual(stepsAfter(trace, 3), [2, 2]);
});

test("a handout shows three moments, fewer of a short run", () => {
  assert.deepEqual(moments(128), [42, 84, 127]);
  assert.deepEqual(moments(1), [0]);
});

test("an embedded page shows the lanes that are asked for", () => {
  const trace = Trace.parse(small());
  const shown = (query) => embeddedLanes(trace, new URLSearchParams(query));
  assert.equal(shown("embed"), trace);
  const one = shown("embed&lanes=1");
  assert.deepEqual([one.lanes, one.reference, trace.lanes.length], [[trace.lanes[1]], trace.lanes[1], 2]);
});

test("an address says what is looked at, and what of it cannot be read", () => {
  const read = (search) => {
    const { settings, view, problem } = readAddress(search);
    return [settings, view, problem];
  };
  assert.deepEqual(read(""), ["", {}, ""]);
  assert.deepEqual(read("?step=7&pins=3,5&race=steps&present&embed&lanes=1"), [
    "",
    { step: 6, pins: [3, 5], byClock: false },
    "",
  ]);
  assert.deepEqual(read("?prompt=a+b&step=1"), ["prompt=a+b", { step: 0 }, ""]);
  for (const step of ["0", "-1", "x", "1.5", ""])
    assert.deepEqual(read(`?step=${step}`), ["", {}, "The link is damaged at step; the rest of it holds."]);
  const [, view, problem] = read("?step=2&pins=1,x&race=fast");
  assert.deepEqual(view, { step: 1, pins: [1] });
  assert.equal(problem, "The link is damaged at pins and race; the rest of it holds.");
  const there = { step: 6, pins: [3, 5], byClock: false };
  assert.deepEqual(readAddress(writeAddress("prompt=a", there, "?embed&step=99")).view, there);
  assert.ok(writeAddress("prompt=a", there, "?embed&step=99").includes("embed="));
  assert.equal(writeAddress("x".repeat(9000), { step: 0 }), "step=1");
});

test("a run's link asks for its chat template as the form does", () => {
  const document = small();
  for (const [chat, asked] of [
    [undefined, null],
    [true, null],
    [false, "false"],
  ]) {
    document.header.chat = chat;
    assert.equal(new URLSearchParams(settingsOf(Trace.parse(document))).get("chat"), asked);
    const form = { model: "m", prompt: "p", chat, lanes: '{"lanes":[]}' };
    assert.equal(new URLSearchParams(settingsOfForm(form)).get("chat"), asked);
  }
});

test("two queries ask for the same run whatever their order", () => {
  assert.ok(sameSettings("a=1&b=2", "b=2&a=1"));
  for (const other of ["a=1", "a=1&b=3", "a=1&b=2&c=3"]) assert.ok(!sameSettings("a=1&b=2", other));
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
