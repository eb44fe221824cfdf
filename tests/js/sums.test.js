// Every sentence and number that the page makes of a trace, by the code that makes it, held against the trace's own records (see
// sentences.js): over twelve traces all of them are true, and add up.

import assert from "node:assert/strict";
import test from "node:test";
import { lockDelays } from "../../assets/js/below/analysis.js";
import { heading } from "../../assets/js/export/poster.js";
import { toCsv } from "../../assets/js/export/share.js";
import { laneClock } from "../../assets/js/stage/clock.js";
import { GAUGES } from "../../assets/js/stage/gauges.js";
import { blanks, happens, moments, narrate } from "../../assets/js/stage/narrator.js";
import { otherTokens, workSoFar } from "../../assets/js/stage/numbers.js";
import { cellText, gridName, summary } from "../../assets/js/stage/spoken.js";
import { verdict } from "../../assets/js/stage/verdict.js";
import { chapters } from "../../assets/js/trace/chapters.js";
import { readTrace } from "../../assets/js/trace/reading.js";
import { results } from "../../assets/js/trace/results.js";
import { holds, numbersIn, reading, same } from "./sentences.js";
import { byHand, decoder, longer, pairs, raceOf, read, small } from "./small.js";

const aged = (rule, unlocked = []) =>
  raceOf(
    [
      [decoder("a", "All", { kind: "everything" }), [{ unmasked: pairs(2, 12, 3, 20) }, {}, {}, {}]],
      [
        decoder("b", "B", rule),
        [
          { unmasked: pairs(2, 20, 3, 12), locked: [0] },
          { locked: [2, 3] },
          { computed: [1, 1], kl: [0], confidence: [1], unlocked },
          {},
        ],
      ],
    ],
    { pieces: { 20: " tale" } },
  );
const cut = (document, records) => ({ ...document, records: document.records.slice(0, records) });
const scored = () => {
  const document = longer(small(), { b: { flops: 80, computed: [3, 1], kl: [0], confidence: [1] } });
  for (const each of document.records) Object.assign(each, { commit_error: each.unmasked.map(() => 0), changed: [] });
  return document;
};
const TRACES = {
  stories: read("assets/runs/stories.json"),
  rules: read("assets/runs/rules.json"),
  "too early": read("assets/runs/too-early.json"),
  "by hand, in blocks": read("tests/traces/events.json"),
  "stopped half-way": cut(read("assets/runs/stories.json"), 130),
  small: small(),
  "nothing changed": scored(),
  "one lane": byHand(),
  "by age": aged({ kind: "age", steps: 1 }),
  "with unlocking": aged({ kind: "lock", epsilon: 1, unlock: {} }, [2]),
  "one step": cut(small(), 2),
  "ended early": { ...small(), records: small().records.filter(({ lane, step }) => lane === "a" || step < 2) },
  "beside the other": { ...small(), header: { ...small().header, reference: "b" } },
};

/** The positions that are locked and that the step did not compute. */
const leftOut = ({ locked, computed }) => [...locked].filter((p) => !computed.has(p));

const NUMBERS = {
  "gridName: the cells of each state": ({ trace, lane, now, t }) => {
    const told = gridName(lane, t).match(/: (\d+) masked, (\d+) active, (\d+) resting, (\d+) locked/);
    const [masked, active, resting, locked] = told.slice(1).map(Number);
    assert.deepEqual([masked, locked], [trace.n - now.tokens.size, leftOut(now).length]);
    assert.equal(masked + active + resting + locked, trace.n);
    const blind = [...now.computed].filter((p) => !now.tokens.has(p)).length;
    assert.equal(active + blind, now.computed.size, "what the step computed, also where it locks in it");
  },
  "gauges: the bar is the number, locked + not locked = all, changed is of the choices": ({
    trace,
    lane,
    now,
    step,
  }) => {
    const totals = trace.totals(lane, step);
    const read = Object.fromEntries(
      GAUGES.map((gauge) => [
        gauge.key,
        gauge.read(totals, { n: trace.n, name: "A", single: false, slowest: 1, uncompared: "" }),
      ]),
    );
    const [of, not] = numbersIn(read.locked.note);
    assert.deepEqual(
      [Number(read.locked.value), of, Number(read.locked.value) + not],
      [leftOut(now).length, trace.n, trace.n],
    );
    same(Number.parseFloat(read.flops.value), 100 * read.flops.bar);
    if (totals.damage)
      assert.deepEqual([Number(read.damage.value), numbersIn(read.damage.note)[0]], [now.changed, now.choices]);
    assert.equal(read.time.value === "–", read.time.bar === 0);
  },
  "heading: work, locked, step; the bar is full where the lane is at its end": ({ trace, lane, now, t }) => {
    const { clock, told, done } = heading(trace, lane, t);
    const [work, locked, of, step, steps] = numbersIn(told);
    const written = now.tokens.size === trace.n && t + 1 === lane.count;
    const ends = written || t + 1 === lane.decoder.settings.steps;
    assert.deepEqual([done === 1, clock.endsWith("✓")], [ends, ends]);
    same(work, (100 * now.flops) / now.every);
    assert.deepEqual([locked, of, step], [leftOut(now).length, trace.n, t + 1]);
    assert.ok(step <= steps);
  },
  "numbers: the work beside the reference's in as many steps, and the tokens that differ": (place) => {
    const { trace, lane, now, t, step, others } = place;
    const { share, bar } = workSoFar(trace, step)[trace.lanes.indexOf(lane)];
    const steps = others.get(trace.reference.id);
    const fair = steps[Math.min(lane.endsAt(t) ? Number.POSITIVE_INFINITY : t, steps.length - 1)];
    if (trace.race.byClock && trace.lanes.length > 1) assert.ok(Math.abs(share - now.flops / fair.flops) < 1e-6);
    assert.ok(share > 1 || Math.abs(bar - share) < 1e-9 || workSoFar(trace, step).some((each) => each.share > 1));
    const base = steps[trace.race.reached(trace.reference, step)]?.tokens ?? new Map();
    const other = [...now.tokens].filter(([p, token]) => base.has(p) && base.get(p) !== token).length;
    assert.equal(otherTokens(trace, lane, step), other);
  },
  "clock: seconds and step": ({ trace, lane, now, t, step }) => {
    const [time, at] = laneClock(trace, lane, step);
    if (time !== "not timed") assert.ok(Math.abs(numbersIn(time)[0] - now.seconds) <= 0.06, time);
    assert.equal(numbersIn(at)[0], t + 1);
  },
  "summary: locked and changed": ({ trace, lane, now, step }) => {
    const told =
      summary(trace, step)
        .split(". ")
        .find((each) => each.startsWith(lane.name)) ?? "";
    const locked = told.match(/(\d+) of (\d+) tokens locked/);
    if (locked) assert.deepEqual(locked.slice(1).map(Number), [leftOut(now).length, trace.n]);
    const changed = told.match(/(\d+) of (\d+) choices changed/);
    if (changed) assert.deepEqual(changed.slice(1).map(Number), [now.changed, now.choices]);
  },
  "cellText: the tokens that are written": ({ trace, lane, now, step }) => {
    for (let p = 0; p < trace.n; p++) assert.equal(/: masked/.test(cellText(trace, lane, p, step)), !now.tokens.has(p));
  },
};

const LAST = {
  "analysis: each locked token's steps since it was written, the others that are written beside them": (place) => {
    const { lane, now, steps } = place;
    const lockedAt = (p) => steps.findLastIndex(({ record }) => record.locked.includes(p));
    const writes = (p) => (each) => [...(each.record.written ?? []), ...each.record.unmasked].some(([q]) => q === p);
    const delayOf = (p) => lockedAt(p) - Math.max(0, steps.findLastIndex(writes(p)));
    const delays = [...now.locked].map(delayOf).sort((a, b) => a - b);
    assert.deepEqual(lockDelays(lane), { delays, never: now.tokens.size - now.locked.size });
  },
  "results: the handout's table": ({ trace, lane, now }) => {
    const told = Object.fromEntries(results(trace, lane));
    assert.equal(Number(told.Steps), lane.count);
    assert.ok(Math.abs(Number.parseFloat(told["Share of all FLOPs"]) - (100 * now.flops) / now.every) < 0.051);
  },
  "toCsv: a row for each cell, computed as often as the records say": ({ trace, lane, steps }) => {
    const rows = toCsv(trace.withLanes([lane]))
      .join("")
      .trim()
      .split("\n")
      .slice(1);
    assert.equal(rows.length, trace.n * lane.count);
    const computed = rows.filter((row) => /,1,[^,]*,[^,]*,[^,]*,[^,]*,[^,]*,[^,]*$/.test(row)).length;
    assert.equal(
      computed,
      steps.reduce((sum, each) => sum + each.computed.size, 0),
    );
  },
};

for (const [name, document] of Object.entries(TRACES))
  test(`what the page tells of ${name} is what its records say, and adds up`, () => {
    const trace = readTrace(document);
    const others = new Map(trace.lanes.map(({ id }) => [id, reading(document, id)]));
    for (const byClock of [false, true]) {
      trace.race.byClock = byClock;
      const found = chapters(trace);
      const placeOf = (lane, step) => {
        const t = trace.race.reached(lane, step);
        const steps = others.get(lane.id);
        return { trace, lane, base: trace.reference, t, step, now: steps[t], steps, others };
      };
      const lane = trace.subject;
      for (let step = -1; step <= trace.race.last; step++) {
        holds(narrate(trace, step, found), placeOf(lane, step));
        for (const each of trace.lanes) {
          const place = placeOf(each, step);
          if (place.t < 0) continue;
          holds(happens(trace, each, place.t, byClock), place);
          for (const check of Object.values(NUMBERS)) check(place);
        }
      }
      for (const { step, sentence } of moments(trace, found)) holds(sentence(), placeOf(lane, step));
      if (trace.complete && trace.lanes.length > 1)
        for (const each of trace.others) {
          const [told] = verdict(trace.withLanes([trace.reference, each]), trace.race.last).match(/.*/s);
          holds(told, placeOf(each, trace.race.last));
        }
      for (const each of trace.lanes) for (const check of Object.values(LAST)) check(placeOf(each, trace.race.last));
    }
    assert.ok(blanks(trace).length);
  });
