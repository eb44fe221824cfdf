import assert from "node:assert/strict";
import test from "node:test";

import { Gauges } from "../../assets/js/stage/gauges.js";
import { mostWork } from "../../assets/js/stage/numbers.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { onPage } from "./page.js";
import { every, raceOf, shown, small } from "./small.js";

test("four gauges tell of each lane beside the reference, in a number, a note and a bar", (t) => {
  onPage(t);
  const told = (trace, step) => {
    const gauges = new Gauges();
    gauges.load(trace);
    gauges.draw(trace, step);
    assert.deepEqual(
      gauges.node.all("sl-gauge-label").map(({ children: [label] }) => label.children?.[0] ?? label),
      ["Computation so far", "Tokens locked", "Measured time", "Choices changed by skipping rows"],
    );
    assert.equal(gauges.node.all("sl-gauge-row").length, 4 * trace.others.length);
    return gauges.gauges.map(({ rows }) =>
      rows.map(({ node, value, note, bar, base }) => {
        assert.equal(node.title, note.textContent);
        const bars = [bar, base].flatMap((each) => each?.style.transform.match(/[\d.]+/)[0] ?? []).map(Number);
        return [value.textContent, note.textContent, ...bars].join(" | ");
      }),
    );
  };
  const trace = Trace.parse(small());
  const [, locks] = trace.lanes;
  assert.deepEqual(told(trace, 2), [
    ["80 % | of the FLOPs of “All” | 0.8"],
    ["3 | of 4 tokens; 1 are not locked | 0.75"],
    ["– | too close to tell: 2.00 s against 3.00 s | 0 | 0"],
    ["– | unknown; the same text for the first word | 0"],
  ]);
  const nothing = "– | \u00a0 | 0";
  assert.deepEqual(told(trace, -1), [[nothing], [nothing], [`${nothing} | 0`], [nothing]]);
  locks.score([[0.5], [0.25], []], [[2], [], []], [0.5, 0.1, 0]);
  assert.deepEqual(told(trace, 1)[3], [
    "1 | of 2, commit error 0.38 nats, regret 0.3; the same text for the first word | 0.5",
  ]);
  assert.deepEqual(told(trace.withLanes([locks]), 2), [
    ["80 % | of computing every token | 0.8"],
    ["3 | of 4 tokens; 1 are not locked | 0.75"],
    ["2.00 s | on this machine | 1"],
    ["1 | of 2, commit error 0.38 nats, regret 0.3 | 0.5"],
  ]);
});

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
