import assert from "node:assert/strict";
import test from "node:test";

import { page } from "../../assets/js/run/state.js";
import { Timeline } from "../../assets/js/stage/timeline.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { onPage } from "./page.js";
import { decoder, raceOf, shown, small } from "./small.js";

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

test("a run that still comes is followed from its front, and has room for all its steps", () => {
  const line = at(0, { live: true });
  line.trace.header.steps = line.trace.steps = 9;
  assert.deepEqual([line.last, line.steps, line.atEnd], [2, 9, false]);
  line.seek(1);
  assert.deepEqual([line.follow, line.held], [false, true]);
  line.seek(5);
  assert.deepEqual([line.step, line.follow, line.held, line.atEnd], [2, true, false, true]);
  assert.deepEqual([at(2).steps, at(2).atEnd, at(3).atEnd, at(1).atEnd], [3, true, true, false]);
  const none = at(-1, { trace: null });
  assert.deepEqual([none.last, none.steps], [-1, 0]);
  const clock = at(0, { live: true, byClock: true });
  const { records } = small();
  clock.trace = shown(new Trace(small()), { byClock: true });
  for (const record of records.slice(0, 3)) clock.trace.append(record);
  assert.deepEqual([clock.last, at(0, { ...clock, live: false }).last], [0, 1], "by the clock the one ahead waits");
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
  assert.deepEqual(pressed({ playing: true }), [true, "pause", "seek"]);
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

test("buttons and fields say what they do, and do it", (t) => {
  const pass = onPage(t);
  const [moved, told] = [[], []];
  const note = (name, answer) => () => told.push(name) && answer;
  const line = new Timeline({
    onMove: (...how) => moved.push(how),
    onPlaying() {},
    onSeek: note("seek"),
    onStepPastEnd: note("more", true),
    onRace: note("race"),
  });
  assert.deepEqual([line.step, line.follow, line.byClock, line.last, line.steps], [-1, true, true, -1, 0]);
  assert.deepEqual([line.scrubbed, line.playing, line.held, line.stops, line.chapters], [false, false, false, [], []]);
  const { node } = line;
  assert.deepEqual([node.className, node.attributes], ["sl-timeline", { "aria-label": "Timeline" }]);
  assert.deepEqual([line.label, line.whose], [node.find("sl-step-label"), node.find("sl-step-whose")]);
  assert.deepEqual(node.find("sl-chapters").attributes["aria-hidden"], "true");
  assert.deepEqual(
    node.children.map(({ className }) => className),
    ["sl-tools", "sl-scrub", "sl-live", "sl-step-box", "sl-speed sl-race", "sl-speed"],
  );
  Object.assign(line.ticks, { clientWidth: 51, clientHeight: 10 });
  line.load(Trace.parse(small()), { step: 1 });
  pass(0.1);
  assert.deepEqual([line.label.textContent, line.scrubber.max, line.scrubber.value], ["step 2 / 3", 2, 1]);
  const [picture] = line.playButton.children;
  line.show();
  pass(0.1);
  assert.equal(line.playButton.children[0], picture, "made when it changes");
  const spoken = () => [line.whose.textContent, line.scrubber.attributes["aria-valuetext"]];
  assert.deepEqual(spoken(), ["", "step 2 / 3"]);
  const shapes = new Set();
  const steps = ["start", "forward", "end", "back", "play"].map((name) => {
    const button = node.find(`sl-${name}`);
    shapes.add(button.children[0].children[0].attributes.d);
    button.fire("click");
    shapes.add(button.children[0].children[0].attributes.d);
    return [button.attributes["aria-label"], button.title ?? button.attributes.title, line.step];
  });
  assert.deepEqual(steps, [
    ["To the start", "To the start (Home)", 0],
    ["One step forward", "One step forward (Right)", 1],
    ["To the end", "To the end (End)", 2],
    ["One step back", "One step back (Left)", 1],
    ["Pause", "Pause (Space)", 1],
  ]);
  assert.ok(shapes.size === 6 && [...shapes].every((shape) => shape?.startsWith("M")), "each has a picture of its own");
  assert.deepEqual([line.held, line.follow, line.stops], [false, false, []]);
  pass(0.1);
  line.scrubber.value = "2";
  line.scrubber.fire("input");
  pass(0.1);
  line.seek(1);
  pass(0.1);
  assert.deepEqual(
    [line.playing, moved.slice(-2)],
    [
      false,
      [
        [2, true],
        [1, false],
      ],
    ],
  );
  const [race, speed] = node.all("sl-speed");
  const options = (select) => select.children.map(({ attributes, children }) => [attributes.value, children[0]]);
  assert.deepEqual(options(race), [
    ["clock", "by clock"],
    ["steps", "by step"],
  ]);
  assert.deepEqual(
    options(speed).map(([value]) => value),
    ["0.25", "0.5", "1", "2", "4", "8"],
  );
  assert.deepEqual(speed.children.filter(({ attributes: { selected } }) => selected === "").length, 1);
  assert.equal(speed.children[2].attributes.selected, "");
  assert.equal(race.value, "clock");
  race.value = "steps";
  race.fire("change");
  assert.deepEqual([line.byClock, line.trace.race.byClock, told.pop()], [false, false, "race"]);
  race.fire("change");
  assert.notEqual(told.at(-1), "race", "what is chosen already changes nothing");
  const ticks = node.find("sl-ticks").calls.map(([, ...at]) => at.map((x) => x.toFixed(1)).join(" "));
  const drawn = ["0.0 10.4 2.0 9.6", "50.0 10.4 2.0 9.6", "100.0 7.8 2.0 12.2"]; // one lock, one, and two
  assert.deepEqual(ticks, [...drawn, ...drawn], "when it is loaded, and by step");
  assert.equal(node.find("sl-ticks").calls[0][0], "--sl-lane-2");
  line.mark([{ step: 1, name: "Fork" }]);
  const [mark] = line.marks.children;
  assert.deepEqual([mark.attributes.title, mark.attributes.style], ["Fork: step 2", "left:calc((100% - 12px) * 0.5)"]);
  line.seek(2);
  mark.fire("click");
  assert.equal(line.step, 1);
  race.value = "clock";
  race.fire("change");
  pass(0.1);
  assert.deepEqual([line.byClock, ...spoken()], [true, "of “All”", `${line.label.textContent} of “All”`]);
  const untimed = small();
  untimed.header.timed_together = undefined;
  const offered = (trace) => {
    line.load(Trace.parse(trace));
    assert.deepEqual([line.live, line.held, line.step], [false, false, -1]);
    return [race.value, race.disabled, race.title];
  };
  assert.deepEqual(offered(untimed), ["steps", true, "Not timed together, so shown step by step"]);
  assert.deepEqual(offered(small()), ["clock", false, "By the clock or step by step (S)"]);
  line.setRace(false);
  assert.deepEqual(offered(small()), ["steps", false, "By the clock or step by step (S)"]);
  const go = node.find("sl-live");
  assert.equal(go.attributes.hidden, "");
  const live = new Trace(small());
  const { records } = small();
  const come = (count) => {
    for (const record of records.splice(0, count)) live.append(record);
    line.grew();
    pass(0.1);
    return [line.step, go.hidden, line.label.textContent];
  };
  live.append(records.shift());
  line.load(shown(live, { live: true }), { live: true });
  assert.deepEqual(come(1), [0, true, "step 1 / 3"]);
  assert.deepEqual(come(1), [1, true, "step 2 / 3"]);
  line.seek(0);
  assert.deepEqual(come(0), [0, false, "step 1 / 3"], "who has gone back stays there");
  go.fire("click");
  assert.deepEqual([line.step, line.follow, line.held], [1, true, false]);
  line.follow = false;
  assert.deepEqual(come(1), [1, true, "step 2 / 3"], "nothing more will come");
});

test("a play ends with the run, or where it is paused", (t) => {
  const pass = onPage(t);
  const [told, moved] = [[], []];
  const note = (list) => (value) => list.push(value);
  const line = new Timeline({ onMove: note(moved), onPlaying: note(told) });
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
  const decoders = [decoder("a", "All", { kind: "everything" })];
  const after = (count, speed, seconds) => {
    const moved = [];
    const line = new Timeline({ onMove: (step) => moved.push(step), onPlaying() {} });
    line.trace = Trace.parse(raceOf(decoders.map((each) => [each, new Array(count).fill({})])));
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

test("a play rests for a moment at its stops, each told once it is shown, and goes on", (t) => {
  const pass = onPage(t);
  const told = [];
  const line = new Timeline({
    onMove: (step) => told.push(step),
    onPlaying() {},
    onRest: () => told.push("rest"),
  });
  const decoders = [decoder("a", "All", { kind: "everything" })];
  line.trace = Trace.parse(raceOf(decoders.map((each) => [each, new Array(100).fill({})])));
  line.speed.value = "1";
  line.play({ stops: [2] });
  pass(2.4);
  assert.deepEqual([told, line.rests, line.moving], [[0, 1, 2, "rest"], true, false]);
  pass(3);
  assert.deepEqual([told.slice(0, 5), line.rests], [[0, 1, 2, "rest", 3], false]);
  line.pause();
});
