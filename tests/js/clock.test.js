import assert from "node:assert/strict";
import test from "node:test";
import { laneClock } from "../../assets/js/stage/clock.js";
import { narrate } from "../../assets/js/stage/narrator.js";
import { chapters } from "../../assets/js/trace/chapters.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { decoder, joined, raceOf, shown, small } from "./small.js";

/** `small`, whose first lane takes 1 s a step and whose second takes these. */
function raced(...seconds) {
  const document = small();
  Object.assign(document.pieces, { 13: "t", 14: "s" });
  for (const record of document.records) if (record.lane === "b") record.seconds = seconds[record.step];
  const trace = Trace.parse(document);
  trace.race.byClock = true;
  return trace;
}

const both = (trace, step) => trace.lanes.map((lane) => trace.race.reached(lane, step));

test("by the clock the cursor counts the slowest lane's steps, and the others have done what they had time for", () => {
  const trace = raced(0.6, 0.6, 0.6);
  assert.equal(trace.race.pacemaker.id, "a");
  assert.deepEqual(joined([-1, 0, 1, 2].map((step) => both(trace, step))), ["-1 -1", "0 0", "1 2", "2 2"]);
  assert.equal(trace.race.last, 2);
  const slow = raced(3, 0.5, 0.5); // at first behind: after one second of its own it has done nothing
  assert.equal(slow.race.pacemaker.id, "b");
  assert.deepEqual(both(slow, 0), [2, 0]);
  assert.deepEqual(both(raced(1.5, 0.1, 0.1), 0), [0, -1]);
});

test("by the clock lanes without one go step by step, and nobody's steps are counted", () => {
  const untimed = small();
  untimed.header.timed_together = undefined;
  const trace = shown(Trace.parse(untimed), { byClock: true });
  assert.equal(trace.race.pacemaker, null);
  assert.deepEqual([trace.race.whose, trace.race.last, both(trace, 1)], ["", 2, [1, 1]]);
  for (const step of [-1, 0, 1, 2]) assert.ok(narrate(trace, step, chapters(trace)).endsWith("."));
  assert.deepEqual(laneClock(trace, trace.lanes[1], 0), ["not timed", "step 1 of 3"]);
});

test("step by step all lanes are at the same step", () => {
  const trace = raced(0.1, 0.1, 0.1);
  trace.race.byClock = false;
  assert.deepEqual(both(trace, 1), [1, 1]);
});

test("the cursor's step for a lane's step is the first that shows it", () => {
  for (const seconds of [
    [0.6, 0.6, 0.6],
    [0.5, 0.5, 0.5],
    [1, 1, 1],
    [0.1, 0.1, 0.1],
    [3, 0.5, 0.5],
  ]) {
    const trace = raced(...seconds);
    for (const lane of trace.lanes)
      for (const t of [0, 1, 2]) {
        const at = trace.race.cursorAt(lane, t);
        assert.ok(trace.race.reached(lane, at) >= t, `${seconds} ${lane.id} ${t}`);
        assert.ok(at === 0 || trace.race.reached(lane, at - 1) < t, `${seconds} ${lane.id} ${t}`);
      }
  }
});

test("totals by the clock are of a lane's own step beside as many of the reference's", () => {
  const trace = raced(0.4, 0.4, 0.4);
  const [, lane] = trace.lanes;
  const now = trace.totals(lane, 0); // two steps done in the first second
  assert.equal(now.steps, 2);
  assert.deepEqual([now.seconds, now.against], [0.8, 2]);
  assert.equal(now.flopsShare, (100 + 80) / 200);
});

test("while records come the newest that shows is what the quickest has computed", () => {
  const document = small();
  const trace = new Trace(document);
  shown(trace, { byClock: true, live: true, growing: trace.lanes });
  trace.append(document.records[0]);
  trace.append({ ...document.records[1], seconds: 0.5 });
  assert.deepEqual([trace.race.front, trace.complete], [-1, false]); // in half a second the other has done nothing
  for (const record of document.records.slice(2)) trace.append(record);
  assert.deepEqual([trace.race.front, trace.complete], [2, true]);
});

test("each lane's clock, and who was first", () => {
  const trace = raced(0.6, 0.6, 0.6);
  const told = (step) => joined(trace.lanes.map((lane) => laneClock(trace, lane, step)));
  assert.deepEqual(told(0), ["1.00 s step 1 of 3", "0.60 s step 1 of 3"]);
  assert.deepEqual(told(1), ["2.00 s step 2 of 3", "first: 1.80 s 3 steps"]);
  assert.equal(narrate(trace, 1), "“=Locks” has finished after 1.80 s; “All” is still at work.");
  assert.deepEqual(laneClock(trace, trace.lanes[0], 2), ["3.00 s", "3 steps"]);
  assert.deepEqual(laneClock(trace, trace.lanes[0], -1), ["", ""]);
});

test("chapters are in order of the cursor's steps, each told at its step", () => {
  const trace = raced(1, 1, 0.5);
  const found = chapters(trace);
  const told = found.map(({ step, name }) => [step, name]);
  assert.deepEqual(joined(told), ["1 Fork", "2 First lock", "2 Half locked", "2 Slowest to lock", "2 End"]);
  assert.equal(
    found.find(({ name }) => name === "Slowest to lock").text,
    "of the words that lock, “=a” took longest: 2 steps after it was written.",
  );
  assert.match(
    narrate(trace, 1, found),
    /^Step 2 of “=Locks”: the texts part here: “=Locks” has “=as” where “All” has “=at”\.$/,
  );
  assert.match(narrate(trace, 2, found), /^“=Locks” did/); // the verdict is the end's own
});

test("of several who are through the first is the one with the shortest time, and none where two share it", () => {
  const firsts = (...seconds) => {
    const lane = (own, i) => [decoder(`${i}`, `${i}`, { kind: "everything" }), [{ seconds: own }, { seconds: own }]];
    const trace = shown(Trace.parse(raceOf(seconds.map(lane))), { byClock: true });
    return trace.lanes.map((each) => laneClock(trace, each, 1)[0].startsWith("first: "));
  };
  assert.deepEqual(firsts(3, 1, 2), [false, true, false]);
  assert.deepEqual(firsts(3, 2, 1), [false, false, true]);
  assert.deepEqual(firsts(3, 1, 1), [false, false, false]);
  assert.deepEqual(firsts(3), [false]);
});
