// A page's view is a function of its state: after random looks a page shows what another page shows that comes to the
// same step, pins, colours, reference, drawer and lesson at once.

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { open } from "./browser.js";
import { chosenMove, numbers, RANDOM, read } from "./small.js";

const RUNS = ["too-early", "stories"].map((name) => read(`assets/runs/${name}.json`)); // the second has lessons
const COLOURS = ["state", "kl", "confidence", "entropy"];
const EPSILONS = [null, 1e-6, 0.1];

const checkbox = ({ stage }) => stage.colouring.node.querySelector("input");

/** Ticks or unticks “Guesses”. */
function guess(page, checked) {
  const box = checkbox(page);
  box.checked = checked;
  box.dispatchEvent(new page.window.Event("change", { bubbles: true }));
}

/** name: [can(page), move(page, n)]. n: any number. */
const MOVES = {
  seek: [() => true, ({ stage }, n) => stage.timeline.seek(n % stage.trace.race.last)],
  end: [() => true, ({ stage }) => stage.timeline.seek(stage.trace.race.last)],
  play: [() => true, ({ stage }) => stage.timeline.toggle()],
  clock: [() => true, ({ key }) => key("s")],
  colour: [() => true, ({ stage }, n) => stage.colouring.choose(COLOURS[n % COLOURS.length])],
  guesses: [() => true, (page) => guess(page, !checkbox(page).checked)],
  reference: [() => true, ({ stage }, n) => stage.refer(stage.trace.lanes[n % stage.trace.lanes.length])],
  look: [() => true, ({ stage }, n) => stage.cells.compare(stage.sides[n % stage.sides.length], n % stage.trace.n)],
  pin: [() => true, ({ stage }, n) => stage.cells.pin(n % 5)],
  close: [({ stage }) => stage.drawer.isOpen, ({ stage }) => stage.drawer.close()],
  epsilon: [({ stage }) => stage.drawer.isOpen, ({ stage }, n) => stage.drawer.epsilon.put(EPSILONS[n % 3])],
  lesson: [
    ({ stage }) => stage.trace.header.lanes.length === 2,
    ({ stage: { lessons } }, n) => lessons.begin(lessons.lessons[n % 2], n % 7),
  ],
  page: [({ stage }) => stage.lessons.open, ({ stage: { lessons } }, n) => lessons.go(n % lessons.lesson.pages.length)],
  leave: [({ stage }) => stage.lessons.open, ({ stage }) => stage.lessons.leave()],
};

/** What a visitor has chosen: all that the view is made of. */
function stateOf({ stage, surelock }) {
  const { now } = surelock.page;
  const { drawer, lessons, trace, timeline } = stage;
  const { epsilon } = drawer;
  const at = (lane) => trace.lanes.indexOf(lane);
  return {
    step: now.step,
    held: timeline.held,
    byClock: timeline.byClock,
    colour: now.colour,
    guesses: now.guesses,
    pins: [...now.pins],
    reference: at(trace.reference),
    drawer: drawer.isOpen ? [drawer.cell, at(drawer.from)] : null,
    lesson: lessons.open ? [lessons.lessons.indexOf(lessons.lesson), lessons.page] : null,
    estimate: [at(epsilon.lane), epsilon.value], // its lane is the one with a lock rule that was opened last
  };
}

/** Puts a page to a state, one move for a part of it. */
async function put({ stage, surelock, ...page }, state) {
  const { lessons } = stage;
  if (state.lesson) await lessons.begin(lessons.lessons[state.lesson[0]], state.lesson[1]);
  const { lanes } = stage.trace;
  stage.timeline.pause();
  stage.timeline.setRace(state.byClock);
  stage.refer(lanes[state.reference]);
  stage.colouring.choose(state.colour);
  guess({ stage, ...page }, state.guesses);
  surelock.page.set({ pins: new Map(state.pins) });
  if (state.drawer) stage.drawer.open(state.drawer[0], stage.sides[state.drawer[1]]);
  const [lane, value] = state.estimate;
  stage.drawer.epsilon.turnTo(lanes[lane]);
  stage.drawer.epsilon.put(value);
  stage.timeline.seek(state.step);
}

/** Attributes that say nothing, or that a hidden part has left. */
const SILENT = new Set(["data-at", "style"]);

const isHidden = (node) => node.hidden || (node.tagName === "DIALOG" && !node.open);

/** A line for every visible element and text beneath a node, without charts, which Plotly draws, and the run's source. */
function linesOf(node) {
  if (node.nodeType === 3) return [node.textContent];
  if (isHidden(node) || node.matches(".sl-curves, .sl-run-label")) return [];
  const attributes = [...node.attributes].filter(({ name }) => !SILENT.has(name));
  const words = attributes.map(({ name, value }) => `${name}="${value}"`);
  if (node.value !== undefined) words.push(`value=${node.value}`, `checked=${node.checked}`);
  return [[node.tagName, ...words].join(" "), ...[...node.childNodes].flatMap(linesOf)];
}

/** All that is on show: a page at rest, where nobody points. */
async function shown(page) {
  const { stage, surelock, find, pass, window } = page;
  stage.timeline.pause();
  surelock.page.set({ hover: surelock.page.now.inspected });
  await pass(6000);
  const grids = stage.sides.map(({ grid: { view } }) => ({
    step: view.step,
    tokens: [...view.tokens],
    other: [...(view.other ?? [])],
    labels: [...view.labels],
    faint: [...(view.faint ?? [])],
  }));
  surelock.addressing.write();
  return [...linesOf(find("#sl-stage")), ...grids, window.location.search];
}

async function comesAtOnce(list) {
  const recorded = RUNS[list[0] % RUNS.length];
  const walked = await open("", { recorded });
  const made = [];
  for (const number of list) {
    const { name, move, n } = chosenMove(MOVES, number, (can) => can(walked));
    made.push(name);
    await move(walked, n);
    await walked.pass([40, 700][number % 2]);
  }
  const { timeline } = walked.stage;
  timeline.pause();
  timeline.seek(timeline.step); // held, so that the sentence is of this step
  await walked.pass(40);
  const state = stateOf(walked);
  const after = await shown(walked);
  const fresh = await open("", { recorded });
  await put(fresh, state);
  await fresh.pass(40);
  assert.deepEqual(stateOf(fresh), state);
  assert.deepEqual(after, await shown(fresh), `after ${made.join(", ")}`);
}

test("after any looks a page shows what one shows that comes to the same place at once", async () => {
  await fc.assert(fc.asyncProperty(numbers(16), comesAtOnce), { ...RANDOM, numRuns: 16 });
});
