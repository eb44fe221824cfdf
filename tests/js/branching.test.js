import assert from "node:assert/strict";
import test from "node:test";

import {
  besideParents,
  branchOf,
  cursorBefore,
  doneAt,
  replaceable,
  withEvent,
} from "../../assets/js/run/branching.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { small } from "./small.js";

test("one event more leaves out what was done later, and to its place in its own step", () => {
  const lock = { kind: "lock", step: 2, position: 2 };
  const mask = { kind: "mask", step: 5, position: 3 };
  const write = (step, position) => ({ kind: "write", step, position, token: 7 });
  assert.deepEqual(withEvent([], lock), [lock]);
  assert.deepEqual(withEvent([lock, mask], write(3, 2)), [lock, write(3, 2)]);
  assert.deepEqual(withEvent([lock, mask], write(5, 2)), [lock, mask, write(5, 2)]);
  assert.deepEqual(withEvent([lock, mask], write(5, 3)), [lock, write(5, 3)]);
});

test("a branch stands beside its parent, and of four lanes one is chosen that makes room: neither the parent nor the reference", () => {
  const trace = Trace.parse(small());
  const [a, b] = trace.lanes;
  const { trace: shown, child, from } = branchOf(trace, b, { events: [{ step: 2 }] }, 2, "Other");
  assert.deepEqual([child.id, child.name, child.count, from], ["what-if-1", "Other", 2, 2]);
  assert.deepEqual([child.decoder.parent, child.decoder.events], ["b", [{ step: 2 }]]);
  assert.deepEqual([shown.lanes, trace.lanes.length], [[a, b, child], 2]);
  assert.deepEqual(replaceable(shown, child), [], "there is room");
  const { trace: four, child: third } = branchOf(shown, a, {}, 1, "Third");
  assert.deepEqual(besideParents(four.lanes), [a, third, b, child]);
  assert.deepEqual(replaceable(four, child), [b, third]);
  assert.deepEqual(replaceable(four, b), [child, third]);
  const last = branchOf(four, child, { parent: null }, 0, "From the start", third);
  assert.deepEqual(last.trace.lanes, [a, b, child, last.child]);
  assert.deepEqual([last.child.id, last.child.count, last.child.decoder.parent], ["what-if-3", 0, null]);
  const loop = ["x", "y"].map((id, i) => ({ id, decoder: { parent: "yx"[i] } }));
  assert.deepEqual(besideParents(loop).length, 2, "a file may say that lanes come from each other");
});

test("branches of branches have ids of their own, and a document speaks of no lane that made room", () => {
  let shown = Trace.parse(small());
  let parent = shown.lane("b");
  for (let number = 1; number < 9; number++) {
    const [gone] = replaceable(shown, parent);
    ({ trace: shown, child: parent } = branchOf(shown, parent, {}, 2, `Child ${number}`, gone));
    const again = Trace.parse(shown.toDocument());
    for (const lane of again.lanes) {
      const line = [];
      for (let up = lane; up; up = again.lane(up.decoder.parent)) {
        assert.ok(!line.includes(up), `${lane.id} comes from itself`);
        line.push(up);
      }
    }
    assert.deepEqual([again.lanes.at(-1).id, again.lanes.at(-1).name], [parent.id, `Child ${number}`]);
  }
});

test("the cursor stands where the branch begins, by the clock too", () => {
  const document = small();
  for (const each of document.records) each.seconds = each.lane === "a" ? 1 : 0.5;
  const trace = Trace.parse(document);
  const before = (from) => cursorBefore(branchOf(trace, trace.lane("b"), {}, from, "Other"));
  assert.deepEqual([before(0), before(2)], [-1, 1]);
  trace.byClock = true;
  assert.deepEqual([before(0), before(2)], [-1, 1]); // a branch has no clock beside the others'
});

test("what is done at the cursor's step is done in the lane's own next step, by the clock too", () => {
  const document = small();
  for (const each of document.records) each.seconds = each.lane === "a" ? 1 : 0.5;
  const trace = Trace.parse(document);
  const done = (event, word) => doneAt(trace, trace.lane("b"), 0, event, word);
  const lock = { kind: "lock", position: 2 };
  assert.deepEqual(done(lock), { event: { step: 1, ...lock }, name: "=Locks, from step 2: position 2 locked" });
  trace.byClock = true; // two of its steps took what the slower lane's first took
  assert.deepEqual(done(lock), { event: { step: 2, ...lock }, name: "=Locks, from step 3: position 2 locked" });
  assert.equal(done({ kind: "write", position: 3, token: 5 }, "a").name, "=Locks, from step 3: position 3 written “a”");
  const rule = { kind: "rule", compute: { kind: "everything" } };
  assert.equal(done(rule, "All of it").name, "=Locks, from step 3: All of it");
  assert.equal(done(rule, "x".repeat(99)).name.length, 80);
  trace.lane("b").name = "=Locks, from step 2: this";
  assert.equal(done(rule, "that").name, "=Locks, from step 3: that", "the name of a branch is not grown on");
});
