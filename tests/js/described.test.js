import assert from "node:assert/strict";
import test from "node:test";

import {
  changed,
  choiceText,
  described,
  eventText,
  facts,
  number,
  sentence,
  valueText,
} from "../../assets/js/described.js";
import { nearest, stops } from "../../assets/js/slider.js";
import { contestant } from "./small.js";

const epsilon = { label: "ε", log: true, offered: [1e-8, 1, 0] };
Object.assign(described, {
  settings: { gen_length: { label: "Length" }, steps: { label: "Steps", none: "one per position" } },
  compute: {
    lock: {
      label: "Lock",
      sentence: "Locks.",
      settings: { epsilon, unlock: { label: "Unlock", none: "for good", settings: { period: { label: "Every" } } } },
    },
    select: { label: "Select", sentence: "Selects.", settings: { fraction: { label: "Share" } } },
    everything: { label: "All", sentence: "Computes all.", settings: {} },
  },
  unmask: { low_confidence: { label: "Sure first", sentence: "Writes what is sure.", settings: {} } },
});
const lock = { kind: "lock", epsilon: 5e-4, unlock: null };
const both = { kind: "both", lock, select: { kind: "select", fraction: 0.5 } };

test("numbers are written one way everywhere", () => {
  assert.deepEqual([5e-4, 0.5, 20, 0, "inf", 1e-8, 0.01].map(number), ["5e-4", "0.5", "20", "0", "∞", "1e-8", "0.01"]);
  assert.equal(valueText(-1, epsilon), "never");
  assert.equal(valueText(null, { none: "no gate" }), "no gate");
  assert.deepEqual([valueText(true), valueText(undefined)], ["yes", "–"]);
});

test("a contestant is told from the descriptions alone", () => {
  const one = contestant("a", "A", both, { events: [{ step: 4, kind: "mask", position: 7 }] });
  assert.deepEqual(facts(one), [
    ["Computes", "Lock"],
    ["ε", "5e-4"],
    ["Unlock", "for good"],
    ["Computes", "Select"],
    ["Share", "0.5"],
    ["Writes", "Sure first"],
    ["Length", "2"],
    ["Steps", "3"],
    ["At step 5", "position 7 masked again"],
  ]);
  assert.equal(choiceText(one), "ε 5e-4, Unlock for good, Share 0.5");
  assert.equal(sentence(one, one), "Locks. Selects.");
  assert.equal(sentence(one, { unmask: { kind: "random" } }), "Locks. Selects. Writes what is sure.");
  assert.equal(eventText({ kind: "rule", compute: both }), "Lock, Select");
  assert.equal(choiceText(contestant("a", "A", { ...lock, unlock: { period: 3 } })), "ε 5e-4, Unlock Every 3");
  assert.deepEqual(facts(contestant("a", "A", { kind: "new", x: 1 }))[1], ["x", "1"]); // of a later edition
});

test("what differs from a preset names a lane", () => {
  const own = contestant("a", "A", lock);
  assert.deepEqual(changed(own, own), []);
  assert.deepEqual(changed(contestant("b", "B", { ...lock, epsilon: 0.005 }), own), ["ε 5e-3"]);
  assert.deepEqual(changed(contestant("b", "B", { kind: "everything" }), own), ["All"]);
});

test("a slider has its stops: 1-2-5 on a log scale, steps elsewhere, and its left end for nothing", () => {
  const log = stops(epsilon);
  assert.deepEqual([log.length, log[0], log[1], log.at(-1)], [26, -1, 1e-8, 1]);
  assert.deepEqual([nearest(log, 5e-4, true), log[nearest(log, 6e-4, true)], nearest(log, -1, true)], [15, 5e-4, 0]);
  const steps = stops({ offered: [0, 1, 0.25], none: "no gate" });
  assert.deepEqual(steps, [0, 0.25, 0.5, 0.75, 1, null]);
  assert.deepEqual([nearest(steps, null), nearest(steps, 0.6)], [5, 2]);
});
