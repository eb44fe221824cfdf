import assert from "node:assert/strict";
import test from "node:test";

import { besideParents, branchOf, partedAt, repeats, replaceable } from "../../assets/js/run/branching.js";
import { touchOf } from "../../assets/js/touch/touched_runs.js";
import { touchesOf, withEvent } from "../../assets/js/trace/touches.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { joined, pairs, record, small } from "./small.js";

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

test("a step repeats another one whatever order it tells its decisions in, and not with one more or less", () => {
  const first = { ...record("b", 1), unmasked: pairs(2, 12, 3, 13), locked: [0, 1] };
  const lane = { records: [null, first] };
  assert.ok(repeats(lane, { ...first, unmasked: pairs(3, 13, 2, 12), locked: [1, 0], masked: [], seconds: 9 }));
  const others = [{ computed: [0, 3] }, { unmasked: pairs(2, 12) }, { unmasked: pairs(2, 12, 3, 14) }];
  for (const change of [...others, { locked: [1] }, { masked: [2] }, { written: pairs(2, 12) }, { unlocked: [3] }])
    assert.ok(!repeats(lane, { ...first, ...change }), JSON.stringify(change));
});

test("a branch that parts from its parent goes on beside it from there, both as they are computed now", () => {
  const trace = Trace.parse(small());
  const [a, b] = trace.lanes;
  trace.reference = b;
  const branching = { ...branchOf(trace, b, {}, 2, "Other"), before: trace, cut: false };
  const { child } = branching;
  const again = partedAt(branching, { lane: child.id, step: 1 }, "this engine");
  assert.deepEqual([again.before, again.cut, again.from], [trace, false, 1]);
  const counts = again.trace.lanes.map(({ id, count }) => [id, count]);
  assert.deepEqual(joined(counts), ["a 3", "b 1", `${child.id} 1`]);
  assert.equal(again.trace.lanes[0], a, "what does not part is the same lane");
  assert.equal(again.trace.reference, again.trace.lane("b"));
  assert.equal(again.child, again.trace.lane(child.id));
  assert.deepEqual([trace.reference, b.count, branching.trace.lane(child.id).count], [b, 3, 2], "these stay");
  again.trace.computed(again.trace.lane("b"), "another");
  assert.deepEqual([again.trace.lane("b").decoder.engine, b.decoder.engine], ["another", undefined]);
  const said = "Computed again by this engine, “=Locks” parts from its record in step 2: the new computation is shown.";
  assert.equal(again.parted, said);
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

test("a touched lane stands beside itself as it was, which grows in both where it has not ended", () => {
  const trace = Trace.parse(small());
  const [, b] = trace.lanes;
  const events = [{ step: 1, kind: "write", position: 3, token: 10 }];
  const { trace: shown, child, from } = touchOf(trace, b, events, { of: b, from: 1, name: "B, with your word" });
  assert.deepEqual([shown.lanes, shown.reference, shown.origin], [[b, child], b, trace]);
  assert.deepEqual([child.count, from, child.decoder.parent, child.decoder.events], [1, 1, "b", events]);
  assert.deepEqual(touchesOf(shown), { original: b, touched: child, touches: events });
  assert.deepEqual(touchesOf(Trace.parse(shown.toDocument())).touches, events, "a document tells it again");
  assert.equal(touchesOf(trace), null);
  const begun = new Trace(small());
  for (const each of small().records.slice(0, 2)) begun.append(each);
  const going = touchOf(begun, begun.lane("b"), events, { of: begun.lane("b"), from: 1, name: "B" });
  assert.notEqual(going.trace.lanes[0], begun.lane("b"), "the race's own lane rests");
  assert.equal(going.trace.lanes[0].count, 1);
});
