import assert from "node:assert/strict";
import test from "node:test";

import { chapterText } from "../../assets/js/stage/narrator.js";
import { chapters, writtenAt } from "../../assets/js/trace/chapters.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { decoder, pairs, raceOf, small } from "./small.js";

/** A lane whose steps say what they lock, and which of 2 and 3 they write, beside one that computes everything. */
function raced(steps, pieces = {}) {
  const all = [decoder("a", "All", { kind: "everything" }), steps.map((_, t) => (t ? {} : write))];
  const own = [decoder("b", "B", { kind: "lock", epsilon: 1 }), steps];
  return Trace.parse(raceOf([all, own], { pieces: { 13: " tale", ...pieces } }));
}

const write = { unmasked: pairs(2, 12, 3, 13) };
const named = (trace, name) => chapters(trace).find((each) => each.name === name);

test("a fork is where the later of the two texts is written, and tells both", () => {
  const trace = raced([{ unmasked: [[2, 12]] }, { unmasked: [[3, 14]] }, {}], { 13: " tale", 14: " dog" });
  assert.deepEqual(named(trace, "Fork"), {
    step: 1,
    at: 1,
    name: "Fork",
    stop: true,
    position: 3,
    words: ["dog", "tale"],
  });
  const told = "Step 2: the texts part here: “B” has “dog” where “All” has “tale”.";
  assert.equal(chapterText(trace, named(trace, "Fork")), told);
  assert.deepEqual(
    [2, 3, 0].map((p) => writtenAt(trace, trace.lane("b"), p)),
    [0, 1, 0],
  );
  assert.equal(named(raced([write, {}]), "Fork"), undefined);
  const { lanes } = trace;
  assert.equal(named(trace.withLanes([lanes[1]]), "Fork"), undefined, "a lane alone has nothing to part from");
});

test("the end is told when nothing more comes, and a trace without steps has no chapters", () => {
  const trace = raced([write, {}]);
  assert.deepEqual(chapters(trace), [{ name: "End", step: 1 }]);
  trace.race.live = true;
  assert.deepEqual([chapters(trace), chapters(new Trace(small()))], [[], []]);
  const begun = new Trace(small());
  begun.append(small().records[0]);
  assert.deepEqual(chapters(begun), [], "the lane that is told of has none yet");
});
