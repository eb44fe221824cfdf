import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { Drawer } from "../../assets/js/curves/drawer.js";
import { lookedAt } from "../../assets/js/curves/inspector.js";
import { page } from "../../assets/js/run/state.js";
import { Cells } from "../../assets/js/stage/cells.js";
import { open, raceOnItsWay, STORIES } from "./browser.js";
import { numbers, RANDOM, read } from "./small.js";

test("the progress of a lane goes with its own trace, and with no other", () => {
  const [own, other] = [{}, {}];
  const drawer = (child) =>
    Object.assign(Object.create(Drawer.prototype), { child, progress: { textContent: "step 3" } });
  const after = (child) => {
    const made = drawer(child);
    made.forget({ lanes: [own] });
    return [made.child, made.progress.textContent];
  };
  assert.deepEqual(after(own), [null, ""]);
  assert.deepEqual(after(other), [other, "step 3"]);
  assert.deepEqual(after(true), [true, "step 3"], "one that is being started");
});

test("a pin has the first colour that no other pin has", () => {
  const cells = Object.assign(Object.create(Cells.prototype), { stage: { onView() {}, say() {} } });
  page.set({ pins: new Map() });
  for (const cell of [5, 6, 7, 6, 8, 5, 9, 4]) cells.pin(cell);
  assert.deepEqual(
    [...page.now.pins],
    [
      [7, 2],
      [8, 1],
      [9, 0],
      [4, 3],
    ],
  );
});

/** Random looks at positions and answers in any order: what comes is of what was looked at then. */
async function lateAnswers(list) {
  const { stage, pass } = await open("", { recorded: STORIES });
  const { trace, drawer, timeline } = stage;
  const { inspector } = drawer;
  const answers = [];
  const later = (made) =>
    new Promise((then) => {
      answers.push(() => then(made));
    });
  const at = (lane) => trace.race.reached(lane, stage.view.step);
  const attends = (cell, t) => [[cell, (t + 1) / 128]];
  inspector.fetchAttended = (_, __, cell, t) => later(attends(cell, t));
  const place = (lane, cell, t) => [trace.lanes.indexOf(lane), cell, t].join("-");
  for (const lane of trace.lanes) lane.top = () => null; // as where a server is asked for them
  inspector.fetchTop = (lane, cell, t) => {
    const id = 10_000 + [...place(lane, cell, t)].reduce((sum, letter) => 31 * sum + letter.charCodeAt(0), 7);
    return later([[id, place(lane, cell, t), 1]]);
  };
  const look = (n) => {
    const side = stage.sides[n % stage.sides.length];
    const t = n % side.lane.count;
    timeline.seek(trace.race.cursorAt(side.lane, t));
    drawer.open(side.lane.steps[t].unmasked[0], side);
    stage.cells.compare(side, side.lane.steps[t].unmasked[0]);
    stage.redraw();
  };
  const agrees = (rests) => {
    for (const { lane, attended, bars } of inspector.columns) {
      const t = at(lane);
      const told = lookedAt(trace, lane, t, attends(drawer.cell, t));
      const chosen = t >= 0 && lane.steps[t].unmasked.includes(drawer.cell);
      const { textContent: text } = attended;
      if (rests && t >= 0) assert.ok(bars.textContent.includes(place(lane, drawer.cell, t)), bars.textContent);
      assert.ok(text === (chosen ? told : "") || (!rests && text === ""), `${text}, not ${told}`);
    }
  };
  look(list[0]);
  for (const n of list) {
    const move = [look, look, (m) => answers.splice(m % answers.length, 1)[0]?.()][n % 3];
    move(n >> 2);
    await pass([200, 10][n % 2]);
    agrees(false);
  }
  await pass(400);
  while (answers.length) {
    for (const answer of answers.splice(0).toReversed()) answer(); // the latest look is answered first
    await pass(400);
  }
  agrees(true);
}

test("what was asked of a position is answered there, however late", async () => {
  await fc.assert(fc.asyncProperty(numbers(24), lateAnswers), { ...RANDOM, numRuns: 10 });
});

test("an estimate stays with its lane until it is put back, at whatever lane a person points", async () => {
  const { stage } = await open("", { recorded: read("assets/runs/too-early.json") });
  const { epsilon } = stage.drawer;
  const [dense, first, second] = stage.trace.lanes;
  epsilon.turnTo(second);
  epsilon.put(0.1);
  for (const lane of [first, dense]) {
    epsilon.turnTo(lane);
    assert.equal(epsilon.lane, second);
  }
  epsilon.put(null);
  epsilon.turnTo(dense);
  assert.equal(epsilon.lane, second, "a lane without a lock rule has no ε");
  epsilon.turnTo(first);
  assert.equal(epsilon.lane, first);
});

test("a confidence is no finer than the record's 255 steps", async () => {
  const { stage } = await open("", { recorded: STORIES });
  const { inspector } = stage.drawer;
  for (const cell of [20, 60, 140]) {
    inspector.turnTo(cell);
    inspector.draw(30);
    for (const { facts } of inspector.columns)
      assert.match(facts.textContent, /Confidence(\d{2,3}|\d\.\d) %KL/, "as the likely tokens below it");
  }
});

test("a drawer closes, and the focus goes to a grid, where another lane has taken the place of its lane", async () => {
  const { stage, pass, document } = await open("", { recorded: STORIES });
  const { trace, drawer } = stage;
  drawer.open(20, stage.sides[1]);
  stage.show(trace.withLanes([trace.lanes[0]]), { keep: true });
  await pass(200);
  const close = [...drawer.node.querySelectorAll("button")].find((button) => button.textContent === "Close");
  close.focus();
  close.click();
  assert.equal(drawer.isOpen, false);
  assert.equal(document.activeElement, stage.sides[0].canvas);
});

test("the curve of a position grows with its run", async () => {
  const page = await open("", { recorded: STORIES });
  const { stage, pass, document } = page;
  const race = raceOnItsWay(page);
  const path = () => document.querySelector(".sl-cell-curve path").getAttribute("d");
  const grow = async (from, to) => {
    race.tell(from, to);
    await pass(400);
  };
  await grow(0, 20);
  stage.drawer.open(2, stage.sides[0]);
  await pass(100);
  const before = path();
  await grow(20, 40);
  assert.ok(path().length > before.length);
});
