import assert from "node:assert/strict";
import test from "node:test";

import { Gauges } from "../../assets/js/stage/gauges.js";
import { otherTokens, workSoFar } from "../../assets/js/stage/numbers.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { onPage } from "./page.js";
import { every, raceOf, small } from "./small.js";

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
    ["2 | of 4 tokens; 2 are not locked | 0.5"],
    ["2.00 s | against 3.00 s: no difference to be seen here, one run each | 0.6667 | 1"],
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
    ["2 | of 4 tokens; 2 are not locked | 0.5"],
    ["2.00 s | on this machine | 1"],
    ["1 | of 2, commit error 0.38 nats, regret 0.3 | 0.5"],
  ]);
});

test("the work so far is beside the reference's in as many steps, and a bar is as long as its number", () => {
  const lanes = [
    ["A", 3, 100],
    ["B", 3, 50],
    ["C", 6, 100],
  ];
  const made = lanes.map(([id, count, flops]) => every(id, new Array(count).fill({ flops, baseline_flops: 100 })));
  const trace = Trace.parse(raceOf(made));
  const nothing = workSoFar(trace, -1);
  assert.deepEqual(
    nothing.map(({ share, bar }) => [Number.isNaN(share), bar]),
    new Array(3).fill([true, 0]),
  );
  const shares = (step) => workSoFar(trace, step).map(({ share }) => share);
  assert.deepEqual(shares(0), [1, 0.5, 1]);
  assert.deepEqual(shares(5), [1, 0.5, 2], "one that takes twice the steps does twice the work");
  const bars = workSoFar(trace, 5).map(({ bar }) => bar);
  assert.deepEqual(bars, [0.5, 0.25, 1], "all on one scale");
  const [alone] = workSoFar(trace.withLanes([trace.lanes[1]]), 2);
  assert.equal(alone.share, 0.5, "a single lane is beside computing every token");
});

test("tokens that differ are counted as the grids underline them", () => {
  const trace = Trace.parse(small());
  const [all, locks] = trace.lanes;
  for (let step = -1; step < 3; step++) {
    const pairs = Array.from({ length: trace.n }, (_, p) => [all.token(p, step), locks.token(p, step)]);
    const others = pairs.filter(([a, b]) => a >= 0 && b >= 0 && a !== b).length;
    assert.equal(otherTokens(trace, locks, step), others);
    assert.equal(otherTokens(trace, all, step), 0);
  }
});
