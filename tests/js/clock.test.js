import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { laneClock } from "../../assets/js/stage/clock.js";
import { narrate } from "../../assets/js/stage/narrator.js";
import { chapters } from "../../assets/js/trace/chapters.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { every, joined, lasting, RANDOM, raceOf, shown, small } from "./small.js";

/** `small`, whose first lane takes 1 s a step and whose second takes these. */
function raced(...seconds) {
  const document = small();
  Object.assign(document.pieces, { 13: "t", 14: "s" });
  for (const record of document.records) if (record.lane === "b") record.seconds = seconds[record.step];
  const trace = Trace.parse(document);
  trace.race.byClock = true;
  return trace;
}

/** How lanes of these steps' seconds are raced, worked out from the lists alone. clocked: which have a clock. */
function paced(lists, clocked, byClock) {
  const counts = lists.map(({ length }) => length);
  const total = (i, t = 99) => lists[i].slice(0, t + 1).reduce((sum, each) => sum + each, 0);
  const slowest = clocked.reduce((a, b) => (total(a) >= total(b) ? a : b), clocked[0]);
  const pace = byClock && clocked.length && total(slowest) ? slowest : null;
  const counted = pace === null ? counts : counts.filter((_, i) => i === pace || !clocked.includes(i));
  const reached = (i, step) => {
    if (step < 0) return -1;
    if (pace === null || i === pace || !clocked.includes(i)) return Math.min(step, counts[i] - 1);
    return lists[i].findLastIndex((_, t) => total(i, t) <= total(pace, step));
  };
  return { last: Math.max(...counted) - 1, reached };
}

test("the cursor counts the slowest clocked lane's steps by the clock, and the others have done what they had time for", () => {
  const seconds = fc.array(fc.constantFrom(0, 0.125, 0.25, 0.5, 1, 3), { minLength: 1, maxLength: 6 });
  const races = [fc.array(seconds, { minLength: 1, maxLength: 4 }), fc.nat(4), fc.boolean()];
  const check = (lists, apart, byClock) => {
    const document = raceOf(lists.map((list, i) => every(`${i}`, lasting(...list))));
    const ids = lists.map((_, i) => `${i}`);
    document.header.timed_together = [{ lanes: ids.filter((_, i) => i + 1 !== apart) }];
    const { race, lanes } = shown(Trace.parse(document), { byClock });
    const { last, reached } = paced(
      lists,
      race.clocked.map(({ id }) => Number(id)),
      byClock,
    );
    assert.equal(race.last, last);
    const steps = Array.from({ length: last + 3 }, (_, i) => i - 1);
    for (const [i, lane] of lanes.entries()) {
      for (const step of steps) assert.equal(race.reached(lane, step), reached(i, step), `lane ${i} at ${step}`);
      if (!lists.flat().includes(0))
        for (const t of lists[i].keys())
          assert.equal(
            race.cursorAt(lane, t),
            steps.find((step) => step >= 0 && reached(i, step) >= t),
          );
    }
  };
  fc.assert(fc.property(...races, check), { ...RANDOM, numRuns: 500 });
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
  assert.deepEqual(told(1), ["2.00 s step 2 of 3", "1.80 s 3 steps"]);
  assert.equal(narrate(trace, 1), "“=Locks” has finished after 1.80 s; “All” is still at work.");
  assert.deepEqual(laneClock(trace, trace.lanes[0], 2), ["3.00 s", "3 steps"]);
  assert.deepEqual(laneClock(trace, trace.lanes[0], -1), ["", ""]);
});

test("chapters are in order of the cursor's steps, each told at its step", () => {
  const trace = raced(1, 1, 0.5);
  const found = chapters(trace);
  const told = found.map(({ step, name }) => [step, name]);
  assert.deepEqual(joined(told), ["1 Fork", "2 First lock", "2 Half locked", "2 End"]);
  assert.match(
    narrate(trace, 1, found),
    /^Step 2 of “=Locks”: the texts part here: “=Locks” has “=as” where “All” has “=at”\.$/,
  );
  assert.match(narrate(trace, 2, found), /^“=Locks”: 20 % less work/); // the verdict is the end's own
});

test("of several who are through the first is the one with the shortest time, and none where that is too close to tell", () => {
  const firsts = (...seconds) => {
    const lane = (own, i) => every(`${i}`, new Array(16).fill({ seconds: own }));
    const trace = shown(Trace.parse(raceOf(seconds.map(lane))), { byClock: true });
    return trace.lanes.map((each) => laneClock(trace, each, 15)[0].startsWith("first: "));
  };
  assert.deepEqual(firsts(3, 1, 2), [false, true, false]);
  assert.deepEqual(firsts(3, 2, 1), [false, false, true]);
  assert.deepEqual(firsts(3, 1, 1), [false, false, false]);
  assert.deepEqual(firsts(3), [false]);
  assert.deepEqual(firsts(1, 1.01), [false, false], "too close to tell");
});
