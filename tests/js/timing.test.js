import assert from "node:assert/strict";
import test from "node:test";
import { heading, stepsAfter } from "../../assets/js/export/poster.js";
import { misfit } from "../../assets/js/lessons/steps.js";
import { branchOf } from "../../assets/js/run/branching.js";
import { laneClock } from "../../assets/js/stage/clock.js";
import { measured } from "../../assets/js/stage/gauges.js";
import { narrate } from "../../assets/js/stage/narrator.js";
import { verdict } from "../../assets/js/stage/verdict.js";
import { results } from "../../assets/js/trace/results.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { longer, read, record, small } from "./small.js";

const result = (trace, lane, name) => results(trace, lane).find(([own]) => own === name)[1];

/** The recorded run and what if, beside it, whose steps of its own took so long. */
function whatIf(seconds = 40) {
  const run = Trace.parse(read("assets/runs/stories.json"));
  const { trace, child, from } = branchOf(run, run.lane("surelock"), {}, 126, "What if");
  for (const step of [126, 127]) {
    const { lane: _, ...last } = run.lane("surelock").records[step];
    trace.timed({ timed_together: [{ lanes: ["what-if-1"] }] }); // as the server's header says when its stream begins
    child.append({ ...last, lane: child.id, seconds });
  }
  return { trace, child, from };
}

/** The seconds of a lane of the recorded run, from its records. */
function took(id) {
  const records = read("assets/runs/stories.json").records.filter(({ lane }) => lane === id);
  return `${records.reduce((sum, { seconds }) => sum + seconds, 0).toFixed(2)} s`;
}

test("a what-if has no time beside the run that it comes from, nor after an export", () => {
  const { trace } = whatIf();
  for (const each of [trace, Trace.parse(trace.toDocument())]) {
    each.race.byClock = true;
    const child = each.lanes[2];
    assert.match(verdict(each.withLanes([each.lanes[0], child])), /“What if”: 48 % less work\. /);
    assert.doesNotMatch(verdict(each.withLanes([each.lanes[0], child])), /“What if”[^“]* time/);
    assert.deepEqual(laneClock(each, child, 60), ["not timed", "step 61 of 128"]);
    assert.deepEqual(laneClock(each, child, 127), ["not timed", "128 steps"]);
    assert.equal(laneClock(each, each.lane(each.lanes[1].id), 127)[0], `first: ${took("surelock")}`);
    assert.equal(heading(each, child, 127).clock, "✓");
    assert.deepEqual(
      ["Time", "Speed"].map((name) => result(each, child, name)),
      ["–", "–"],
    );
    assert.equal(result(each, each.lanes[0], "Time"), took("everything"));
    assert.deepEqual(measured(each.totals(child, 127), { slowest: 2 }), {
      value: "–",
      note: "not timed together",
      bar: 0,
    });
  }
});

test("a trace that does not say what was timed together claims nothing of times", () => {
  const { header, ...rest } = longer(small());
  const { timed_together: _, ...silent } = header;
  const trace = Trace.parse({ ...rest, header: silent });
  trace.race.byClock = true;
  assert.deepEqual(
    [trace.race.clocked, trace.race.pacemaker, trace.race.reached(trace.lanes[1], 7), trace.race.last],
    [[], null, 7, 19],
  );
  assert.doesNotMatch(verdict(trace), /time/);
  assert.deepEqual(stepsAfter(trace, 0.5), [9, 9]);
  assert.equal("timed_together" in trace.toDocument().header, false);
  const alone = trace.withLanes([trace.lanes[0]]);
  assert.equal(laneClock(alone, alone.lanes[0], 19)[0], "20.0 s");
  const needs = { needs: [], timed: true };
  assert.match(misfit(trace, needs), /^The lanes of the run on show were not timed together/);
});

test("lanes that go on together in another race stay timed together, one that had ended does not", () => {
  const trace = new Trace(small());
  for (const id of ["a", "b"]) trace.append(record(id, 0));
  const { trace: shown, child } = branchOf(trace, trace.lanes[1], {}, 1, "What if");
  shown.timed({ timed_together: [{ lanes: ["a", "b", child.id] }] });
  assert.deepEqual(shown.race.clocked, [trace.lanes[0], trace.lanes[1]]);
  shown.timed({ timed_together: [{ lanes: ["a", child.id] }] });
  assert.deepEqual(shown.race.clocked, []);
  const { header } = small();
  const never = new Trace({ ...small(), header: { ...header, timed_together: [] } });
  for (const id of ["a", "b"]) never.append(record(id, 0));
  never.timed(header);
  assert.deepEqual(never.race.clocked, [], "steps that were timed apart stay so");
});

/** What the recorded run's clocks say when each step takes these times. */
function retimed(seconds) {
  const document = read("assets/runs/stories.json");
  for (const each of document.records) each.seconds = seconds(each);
  return Trace.parse(document);
}

test("two that compute every row are too close to tell, and no number is shouted after a few steps", () => {
  const [{ own, other }] = read("tests/traces/speeds.json").filter(({ name }) => name.startsWith("two that compute"));
  const alike = retimed(({ lane, step }) => (lane === "surelock" ? own : other)[step]);
  const { speed, seconds, against } = alike.totals(alike.lanes[1], 127);
  assert.ok(speed === null && against / seconds > 1.1);
  assert.match(verdict(alike), /, time: no difference to be seen here \([\d.]+ s and [\d.]+ s, one run each\)\. /);
  assert.equal(result(alike, alike.lanes[1], "Speed"), "no difference to be seen (one run each)");
  const { note, bar, value } = measured(alike.totals(alike.lanes[1], 4), { slowest: 2 });
  assert.match(note, /^against [\d.]+ s: no difference to be seen here, one run each$/);
  assert.ok(Math.abs(Number.parseFloat(value) - 2 * bar) < 0.006, "the bar is as long as the time beside it");
  const twice = retimed(({ lane }) => (lane === "surelock" ? 1 : 2));
  assert.deepEqual(
    [14, 15, 127].map((step) => twice.totals(twice.lanes[1], step).speed),
    [null, 2, 2],
  );
  assert.equal(measured(twice.totals(twice.lanes[1], 127), { slowest: 2 }).note, "against 256 s: 2.00 times as fast");
  assert.match(narrate(twice, 127), /, 50 % less time\./);
});
