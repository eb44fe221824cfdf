import assert from "node:assert/strict";
import test from "node:test";
import { decimals, nearest, stops } from "../../assets/js/curves/slider.js";
import { count, percent, sameText, scientific, seconds, short } from "../../assets/js/dom.js";
import {
  choiceText,
  described,
  eventText,
  facts,
  namesApart,
  number,
  presetName,
  ruleName,
  sentence,
  valueText,
} from "../../assets/js/trace/described.js";
import { decoder } from "./small.js";

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
  assert.deepEqual([Infinity, "0.001", "x"].map(number), ["∞", "0.001", "x"]);
  assert.deepEqual(
    [valueText(0, epsilon), valueText(-1, { log: true }), valueText(-1, { label: "ε" })],
    ["0", "-1", "-1"],
  );
  assert.equal(valueText({ period: 3, budget: 8 }, { settings: { period: { label: "Every" } } }), "Every 3, budget 8");
});

test("a lane is called by its rule and its setting, and no two alike", () => {
  const sure = { kind: "low_confidence" };
  const select = (fraction) => ({ kind: "select", fraction });
  const names = [lock, { ...lock, epsilon: 1e-7 }, select(0.5), both, { kind: "everything" }, { kind: "new" }].map(
    (compute) => ruleName({ compute, unmask: sure }),
  );
  assert.deepEqual(names, ["Lock 5e-4", "Lock 1e-7", "Select 0.5", "Lock 5e-4, Select 0.5", "All", "new"]);
  assert.equal(ruleName({ compute: { kind: "everything" }, unmask: { kind: "threshold", p: 0.9 } }), "threshold 0.9");
  const preset = (name, compute) => ({ name, compute, unmask: { kind: "entropy" } });
  const named = (compute, of, unmask = { kind: "entropy" }) => presetName({ compute, unmask }, preset(...of));
  assert.equal(named(select(0.5), ["Select", select(0.8)]), "Select 0.5");
  assert.equal(named(select(0.8), ["Select", select(0.8)], sure), "Select 0.8, Sure first");
  assert.equal(named({ ...lock, epsilon: 1e-7 }, ["SureLock", lock]), "SureLock, ε 1e-7");
  assert.equal(named(lock, ["SureLock", lock]), "SureLock");
  assert.deepEqual(namesApart(["A", "A (2)", "A", "A (2)", "A (2) (2)"]), [
    "A",
    "A (2)",
    "A (3)",
    "A (4)",
    "A (2) (2)",
  ]);
});

test("a lane is told from the descriptions alone", () => {
  const one = decoder("a", "A", both, { events: [{ step: 4, kind: "mask", position: 7 }] });
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
  assert.equal(sentence(one), "Locks. Selects. Writes what is sure.");
  assert.equal(sentence(one, { unmask: { kind: "random" } }), "Locks. Selects. Writes what is sure.");
  assert.equal(eventText({ kind: "rule", compute: both }), "Lock, Select");
  assert.equal(eventText({ kind: "rule", compute: { kind: "new" } }), "new");
  assert.equal(eventText({ kind: "unlock", position: 3 }), "position 3 unlocked");
  assert.deepEqual(facts(decoder("a", "A", { ...lock, later: 1 }))[3], ["later", "1"]);
  assert.equal(choiceText(decoder("a", "A", { ...lock, unlock: { period: 3 } })), "ε 5e-4, Unlock Every 3");
  assert.deepEqual(facts(decoder("a", "A", { kind: "new", x: 1 }))[1], ["x", "1"]); // of a later edition
});

test("a slider has its stops: 1-2-5 on a log scale, steps elsewhere, and its left end for nothing", () => {
  const log = stops(epsilon);
  assert.deepEqual([log.length, log[0], log[1], log.at(-1)], [26, -1, 1e-8, 1]);
  assert.deepEqual([nearest(log, 5e-4, true), log[nearest(log, 6e-4, true)], nearest(log, -1, true)], [15, 5e-4, 0]);
  const steps = stops({ offered: [0, 1, 0.25], none: "no gate" });
  assert.deepEqual(steps, [0, 0.25, 0.5, 0.75, 1, null]);
  assert.deepEqual([nearest(steps, null), nearest(steps, 0.6)], [5, 2]);
  assert.deepEqual([stops({ offered: [1e-6, 1, 0], log: true })[0], stops({ offered: [1, 3, 1] })], [1e-6, [1, 2, 3]]);
  assert.deepEqual([nearest(log, 1e-12, true), nearest(log, 0, true), nearest([0.25, 0.5, null], 0)], [1, 1, 0]);
  assert.deepEqual([nearest([0, 1], 0.5), nearest([0, 1], 0), nearest([0, 1], 0.6)], [0, 0, 1]);
  assert.deepEqual([decimals({ kind: "whole" }), decimals({ kind: "real" })], [1, "any"]);
});

test("numbers, times and shares in words", () => {
  assert.deepEqual(
    [0, 1e-4, 9.9e-5, 0.01234, 9999, 1e4].map((x) => short(x)),
    ["0", "0.0001", "9.9e-5", "0.012", "10000", "1.0e+4"],
  );
  assert.deepEqual([0, 9.94, 9.95, 99.4, 99.5].map(seconds), ["0.00 s", "9.94 s", "9.9 s", "99.4 s", "100 s"]);
  assert.deepEqual([0, Infinity, 0.01, 0.0099, 999, 1000].map(scientific), [
    "≤ 1e-12",
    "none yet",
    "0.0100",
    "9.9e-3",
    "999",
    "1.0e+3",
  ]);
  assert.deepEqual([percent(0.125, 1), percent(NaN), percent(1)], ["12.5 %", "–", "100 %"]);
  assert.deepEqual(
    [0, 1, 2].map((n) => count(n, "step")),
    ["0 steps", "1 step", "2 steps"],
  );
  assert.equal(sameText({ words: 2 }), "the same text for the first 2 words");
});

test("a rule from outside is found, but not listed, by the kind that it has in traces of version 4", async () => {
  const outside = { label: "Odd", was: "odd", settings: { gap: { label: "Gap" } } };
  const told = { settings: {}, compute: { lock: { label: "Lock" }, "odd_rules:Odd": outside }, unmask: {} };
  globalThis.document = { getElementById: () => ({ textContent: JSON.stringify(told) }) };
  const page = await import("../../assets/js/trace/described.js?page");
  delete globalThis.document;
  assert.deepEqual(Object.keys(page.described.compute), ["lock", "odd_rules:Odd"]);
  const lane = (kind) => ({ compute: { kind, gap: 2 }, unmask: { kind: "entropy" }, settings: {} });
  assert.deepEqual(page.facts(lane("odd")), page.facts(lane("odd_rules:Odd")));
  assert.deepEqual(page.facts(lane("odd")).slice(0, 2), [
    ["Computes", "Odd"],
    ["Gap", "2"],
  ]);
});
