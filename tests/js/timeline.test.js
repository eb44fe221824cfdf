import assert from "node:assert/strict";
import test from "node:test";

import { page } from "../../assets/js/run/state.js";
import { Timeline } from "../../assets/js/stage/timeline.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { onPage } from "./page.js";
import { every, raceOf, small } from "./small.js";

/** A timeline without its controls, at a step of three. */
function at(step, more = {}) {
  const told = [];
  const note = (name, answer) => (value) => {
    told.push(value === undefined ? name : `${name} ${value}`);
    return answer;
  };
  return Object.assign(Object.create(Timeline.prototype), {
    restsUntil: null,
    trace: Trace.parse(small()),
    told,
    step,
    byClock: false,
    live: false,
    follow: false,
    playing: false,
    show: note("show"),
    onSeek: note("seek"),
    onLive: note("live"),
    onStepPastEnd: note("more", true),
    ...more,
  });
}

test("the cursor stays among the steps that there are", () => {
  for (const [step, there] of [
    [-3, 0],
    [-1, 0],
    [0, 0],
    [1, 1],
    [2, 2],
    [3, 2],
    [Infinity, 2],
  ]) {
    const line = at(1);
    line.seek(step);
    assert.equal(line.step, there);
    assert.deepEqual(line.told, ["show", "seek"]);
  }
  const moved = (from, by, more) => {
    const line = at(from, { held: true, ...more });
    line.move(by);
    assert.equal(line.held, !line.follow);
    return [line.step, line.follow, line.told];
  };
  const seen = ["show", "seek"];
  assert.deepEqual(moved(0, -1), [0, false, seen]);
  assert.deepEqual(moved(1, -1), [0, false, seen]);
  assert.deepEqual(moved(0, 1), [1, false, seen]);
  assert.deepEqual(moved(2, 1), [2, true, ["more"]], "past the end one more is asked for");
  assert.deepEqual(moved(2, 1, { onStepPastEnd: () => false }), [2, false, seen]);
  assert.deepEqual(moved(0, 1, { follow: true }), [0, true, ["more"]]);
  assert.deepEqual(moved(2, -1), [1, false, seen]);
  assert.deepEqual(moved(2, 0), [2, false, seen]);
});

test("a chapter is the next one, or the one before", () => {
  const chapters = [0, 1, 1, 2].map((step) => ({ step }));
  for (const [from, by, to] of [
    [0, 1, 1],
    [1, 1, 2],
    [2, 1, 2],
    [2, -1, 1],
    [1, -1, 0],
    [0, -1, 0],
    [-1, 1, 0],
  ]) {
    const line = at(from, { chapters });
    line.chapter(by);
    assert.equal(line.step, to, `${from} by ${by}`);
  }
  const last = at(2, { chapters });
  last.chapter(1);
  assert.deepEqual(last.told, [], "and there is none after the last");
});

test("one play button is the replay's, or of the run that is followed", () => {
  const pressed = ({ state = "idle", ...more }) => {
    page.set({ phase: state });
    const line = at(1, { play: () => line.told.push("play"), pause: () => line.told.push("pause"), ...more });
    line.toggle();
    assert.equal(line.held ?? false, line.told.includes("pause"));
    return [line.moving, ...line.told];
  };
  assert.deepEqual(pressed({}), [false, "play"]);
  assert.deepEqual(pressed({ playing: true }), [true, "pause", "show", "seek"]);
  const live = { live: true, follow: true };
  assert.deepEqual(pressed({ ...live, state: "running" }), [true, "live pause"]);
  assert.deepEqual(pressed({ ...live, state: "running", follow: false }), [false, "play"]);
  assert.deepEqual(pressed({ ...live, state: "running", live: false }), [false, "play"]);
  assert.deepEqual(pressed({ ...live, state: "paused" }), [false, "live resume"]);
  assert.deepEqual(pressed({ ...live, state: "paused", live: false }), [false, "play"]);
  assert.deepEqual(pressed({ live: true, state: "paused" }), [false, "play"]);
  assert.deepEqual(pressed({ live: true, state: "paused", step: 2 }), [false, "live resume"]);
  assert.deepEqual(pressed({ ...live, state: "idle" }), [false, "play"]);
  assert.deepEqual(pressed({ playing: true, restsUntil: 1e9 }), [false], "at a stop it goes on at once");
});

test("a play ends with the run, or where it is paused", (t) => {
  const pass = onPage(t);
  const [told, moved] = [[], []];
  const note = (list) => (value) => list.push(value);
  const line = new Timeline({ onMove: note(moved), onPlaying: note(told), onRest: () => 0 });
  line.trace = Trace.parse(small());
  line.speed.value = "1";
  line.play();
  assert.deepEqual([line.playing, told], [true, [true]]);
  pass(60);
  assert.deepEqual([line.step, line.playing, told], [line.last, false, [true, false]]);
  line.play();
  pass(0.1);
  line.pause();
  line.pause();
  const [step, shown] = [line.step, moved.length];
  pass(60);
  assert.deepEqual([line.step, line.playing, told], [step, false, [true, false, true, false]]);
  assert.ok(step < line.last && moved.length <= shown + 1);
});

test("a run takes nine seconds, at three to thirty steps a second, by the speed that is chosen", (t) => {
  const pass = onPage(t);
  const after = (count, speed, seconds) => {
    const moved = [];
    const line = new Timeline({ onMove: (step) => moved.push(step), onPlaying() {}, onRest: () => 0 });
    line.trace = Trace.parse(raceOf([every("All", new Array(count).fill({}))]));
    line.speed.value = `${speed}`;
    line.play();
    pass(seconds);
    line.pause();
    pass(0.1);
    assert.deepEqual([...moved.keys()], moved, "step by step");
    return moved.length - 1;
  };
  const near = (found, wanted) => assert.ok(Math.abs(found - wanted) <= 1, `${found}, not ${wanted}`);
  near(after(100, 1, 1.8), 20);
  near(after(100, 2, 0.9), 20);
  near(after(900, 1, 0.66), 20);
  near(after(20, 1, 3.3), 10);
  near(after(20, 0.5, 3.3), 5);
});

test("a play rests where a sentence begins, passes by no stop, and goes on", (t) => {
  const pass = onPage(t);
  const told = [];
  let speaks = null; // the step at which a sentence begins
  const line = new Timeline({
    onMove: (step) => told.push(step),
    onPlaying() {},
    onRest: () => {
      const rest = line.step === speaks ? 2500 : 0;
      if (rest) speaks = null;
      return rest;
    },
  });
  line.trace = Trace.parse(raceOf([every("All", new Array(100).fill({}))]));
  line.speed.value = "8";
  line.stops = [5];
  speaks = 5;
  line.play();
  pass(2.4);
  assert.deepEqual([told.at(-1), line.step, line.rests, line.moving], [5, 5, true, false], "it stops at the stop");
  pass(3);
  assert.ok(line.step > 5 && !line.rests);
  line.pause();
  line.step = -1;
  line.play({ first: true });
  told.length = 0;
  pass(2.8);
  assert.deepEqual([told, line.step, line.rests], [[], -1, true], "the blanks stand for three seconds");
  line.pause();
});

test("who follows a run sees it come; where a sentence stands the display rests, says how far the run has come, and catches up", (t) => {
  const pass = onPage(t);
  t.after(() => delete globalThis.matchMedia);
  globalThis.matchMedia = () => ({ matches: false });
  let rest = 0;
  const line = new Timeline({ onMove() {}, onPlaying() {}, onRest: () => rest });
  const document = raceOf([every("All", new Array(100).fill({}))]);
  const trace = new Trace(document);
  trace.race.live = true;
  line.load(trace, { live: true });
  const come = (count) => {
    for (const record of document.records.slice(trace.count, count)) trace.append(record);
    line.grew();
  };
  come(10);
  pass(1);
  assert.equal(line.step, 9);
  rest = 2500;
  come(11);
  pass(0.1);
  assert.deepEqual([line.step, line.rests], [10, true]);
  rest = 0;
  come(40);
  pass(0.5);
  assert.deepEqual([line.step, line.whose.textContent], [10, "40 computed"]);
  pass(3);
  assert.deepEqual([line.step, line.whose.textContent], [39, ""], "it has caught up");
});
