import assert from "node:assert/strict";
import test from "node:test";

import { mostWork } from "../../assets/js/stage/numbers.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { every, raceOf, shown } from "./small.js";

/** Lanes of so many steps of 100 FLOPs each, were every position computed. */
const race = (...steps) => raceOf(steps.map((count, i) => every(`${i}`, new Array(count).fill({}))));

test("while a run comes the whole is what is asked for, not what is there", () => {
  const document = race(8, 4);
  const trace = shown(new Trace(document), { live: true });
  assert.equal(mostWork(trace), 1, "before the first step");
  for (const record of document.records.slice(0, 2)) trace.append(record);
  assert.equal(mostWork(trace), 800);
  for (const record of document.records.slice(2, 6)) trace.append(record);
  assert.equal(mostWork(trace), 800, "it stays while the work grows");
  const lane = trace.lanes[1];
  lane.masked.fill(0);
  assert.ok(lane.endsAt(lane.count - 1), "nothing is left to write");
  lane.decoder.unmask = { kind: "remask" };
  assert.deepEqual(
    [lane.most, lane.endsAt(lane.count - 1), lane.endsAt(7)],
    [8, false, true],
    "what is taken back is written anew in as many steps more",
  );
});
