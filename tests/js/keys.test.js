import assert from "node:assert/strict";
import test from "node:test";

import { gridKeys, letterKeys, timelineKeys } from "../../assets/js/stage/keys.js";

/** A document that only listens; press(key, what it is pressed on, more) says whether the key was taken. */
function page() {
  const listeners = { keydown: new Set(), keyup: new Set() };
  globalThis.document = {
    addEventListener: (type, f) => listeners[type].add(f),
  };
  const press = (key, own = [], { type = "keydown", ...more } = {}) => {
    let taken = false;
    const target = Array.isArray(own) ? { matches: (all) => all.split(", ").some((each) => own.includes(each)) } : own;
    for (const f of listeners[type]) f({ key, target, preventDefault: () => (taken = true), ...more });
    return taken;
  };
  return { press };
}

function timeline() {
  const done = [];
  const note = (name) => (value) => done.push(value === undefined ? name : `${name} ${value}`);
  const names = ["toggle", "move", "seek", "chapter", "setRace"];
  return { done, byClock: true, scrubber: {}, ...Object.fromEntries(names.map((name) => [name, note(name)])) };
}

const KEYS = [" ", "ArrowLeft", "ArrowRight", "Home", "End"];
const ALL = ["toggle", "move -1", "move 1", "seek 0", "seek Infinity"];
const HELD = ["altKey", "ctrlKey", "metaKey", "defaultPrevented"];

test("the timeline's keys work where nothing else needs them", () => {
  const { press } = page();
  const line = timeline();
  timelineKeys(line);
  const done = (own, keys = KEYS, more = {}) => {
    line.done.length = 0;
    for (const key of keys) press(key, own, more);
    return line.done;
  };
  assert.deepEqual(done([]), ALL);
  assert.deepEqual(done({}), ALL, "on a target that is no element");
  assert.deepEqual(done(line.scrubber), ALL, "the scrubber's arrows are the timeline's own");
  line.scrubber.matches = (all) => all.split(", ").includes("input");
  assert.deepEqual(done(line.scrubber), ALL);
  for (const field of [
    "textarea",
    "select",
    "[contenteditable=true]",
    "input:not([type=range]):not([type=checkbox]):not([type=radio])",
  ])
    assert.deepEqual(done([field]), [], field);
  for (const own of ["input", "[role=slider]", "[role=tab]", "[role=listbox] *", "[role=option]"])
    assert.deepEqual(done([own]), [], own);
  assert.deepEqual(done(["[role=region][tabindex]"]), ["toggle"], "a box that scrolls keeps the arrows, Home and End");
  for (const own of ["button", "a", "summary", "[role=button]"]) assert.deepEqual(done([own]), ALL.slice(1), own);
  for (const run of ["#sl-run", "#sl-run *"]) assert.deepEqual(done(["button", run]), ALL, "Run never starts by a key");
  for (const held of HELD) assert.deepEqual(done([], KEYS, { [held]: true }), [], held);
  assert.deepEqual(
    ["x", ...KEYS].map((key) => press(key)),
    [false, true, true, true, true, true],
  );
  assert.deepEqual(
    ["n", "p", "s", "N"].flatMap((key) => [...done([], [key])]),
    ["chapter 1", "chapter -1", "setRace false", "chapter 1"],
  );
});

test("on Run the space that comes up presses nothing", () => {
  const { press } = page();
  timelineKeys(timeline());
  const up = { type: "keyup" };
  assert.deepEqual(
    [press(" ", ["#sl-run"], up), press(" ", [], up), press("a", ["#sl-run"], up), press(" ", {}, up)],
    [true, false, false, false],
  );
});

test("letters work in both cases, but in no field; Escape there, too", () => {
  const { press } = page();
  const done = [];
  letterKeys({ f: () => done.push("f"), Escape: () => done.push("Escape") });
  for (const key of ["f", "F", "Escape", "x", "escape"]) press(key);
  for (const key of ["f", "Escape"]) press(key, ["textarea"]);
  for (const held of HELD) press("f", [], { [held]: true });
  press("f", {});
  assert.deepEqual(done, ["f", "f", "Escape", "Escape", "f"]);
});

test("in a grid the arrows go from cell to cell, and stay inside", () => {
  const done = [];
  let pressed;
  let now = 0;
  const canvas = { addEventListener: (_, f) => (pressed = f) };
  const parts = { cell: () => now, count: () => 10, columns: () => 4 };
  gridKeys(canvas, { ...parts, move: (cell) => done.push(cell), open: (cell) => done.push(`open ${cell}`) });
  const press = (key, from) => {
    done.length = 0;
    now = from;
    let taken = 0;
    pressed({ key, preventDefault: () => taken++, stopPropagation: () => taken++ });
    return [taken, ...done];
  };
  const moves = [
    ["ArrowRight", 0, 1],
    ["ArrowLeft", 1, 0],
    ["ArrowDown", 1, 5],
    ["ArrowUp", 5, 1],
    ["ArrowRight", -1, 0],
    ["Home", 5, 0],
    ["End", 5, 9],
    ["Enter", 0, "open 0"],
  ];
  for (const [key, from, to] of moves) assert.deepEqual(press(key, from), [2, to], key);
  for (const [key, from] of [
    ["ArrowLeft", 0],
    ["ArrowUp", 3],
    ["ArrowRight", 9],
    ["ArrowDown", 6],
  ])
    assert.deepEqual(press(key, from), [2]);
  assert.deepEqual([press("Enter", -1), press("x", 0)], [[0], [0]]);
});
