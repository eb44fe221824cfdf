import assert from "node:assert/strict";
import test from "node:test";

import { branchOf, cursorBefore, withEvent } from "../../assets/js/branching.js";
import { Trace } from "../../assets/js/trace.js";
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

test("a branch stands beside its parent; of four lanes one goes, neither the parent nor the reference", () => {
  const trace = Trace.parse(small());
  const { trace: shown, child, from } = branchOf(trace, trace.lane("b"), { events: [{ step: 2 }] }, 2, "Other");
  assert.deepEqual([child.id, child.name, child.count, from], ["what-if-1", "Other", 2, 2]);
  assert.deepEqual([child.contestant.parent, child.contestant.events], ["b", [{ step: 2 }]]);
  assert.deepEqual([shown.lanes, trace.lanes.length], [[...trace.lanes, child], 2]);
  const { trace: four, child: third } = branchOf(shown, child, {}, 1, "Third");
  const last = branchOf(four, child, { parent: null }, 0, "From the start");
  assert.deepEqual(last.trace.lanes, [trace.lane("a"), child, third, last.child]);
  assert.deepEqual([last.child.id, last.child.count, last.child.contestant.parent], ["what-if-3", 0, null]);
});

test("branches of branches have ids of their own, and a document speaks of no lane that made room", () => {
  let shown = Trace.parse(small());
  let parent = shown.lane("b");
  for (let number = 1; number < 9; number++) {
    ({ trace: shown, child: parent } = branchOf(shown, parent, {}, 2, `Child ${number}`));
    const again = Trace.parse(shown.toDocument());
    for (const lane of again.lanes) {
      const line = [];
      for (let up = lane; up; up = again.lane(up.contestant.parent)) {
        assert.ok(!line.includes(up), `${lane.id} comes from itself`);
        line.push(up);
      }
    }
    assert.deepEqual([again.lanes.at(-1).id, again.lanes.at(-1).name], [parent.id, `Child ${number}`]);
  }
});

test("the cursor stands where the branch begins, by the clock too", () => {
  const document = small();
  for (const each of document.records) each.seconds = each.contestant === "a" ? 1 : 0.5;
  const trace = Trace.parse(document);
  const before = (from) => cursorBefore(branchOf(trace, trace.lane("b"), {}, from, "Other"));
  assert.deepEqual([before(0), before(2)], [-1, 1]);
  trace.byClock = true;
  assert.deepEqual([before(0), before(2)], [-1, 0]); // the two steps took what the slower lane's first took
});
