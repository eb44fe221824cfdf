// What stands on the screen, where a visitor looks for it.

import assert from "node:assert/strict";
import test from "node:test";
import { Curves } from "../../assets/js/curves/curves.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { open, pen, STORIES, settled } from "./browser.js";
import { every, raceOf, small } from "./small.js";

test("Settings opens and closes the form, and Escape closes it", async () => {
  const { find, key, document } = await open();
  const shown = () => document.querySelector(".sidebar").classList.contains("open");
  const states = [shown()];
  for (const act of [() => find(".sl-action-form").click(), () => find(".sl-action-form").click()]) {
    act();
    states.push(shown());
  }
  find(".sl-action-form").click();
  key("Escape");
  assert.deepEqual([...states, shown()], [false, true, false, false]);
});

test("one's own words are one field, which the form has, too; Escape shuts it", async () => {
  const { find, document, surelock, window, pass } = await open();
  surelock.page.set({ examples: ["Tom had a small red boat. One day, he took it to the pond and"], knows: "tales" });
  find(".sl-action-prompt").click();
  assert.ok(!find(".sl-prompt-box").hidden && find(".sl-prompt-box").textContent.includes("This model knows tales."));
  find(".sl-chips button").click();
  await pass(10);
  assert.match(document.querySelector("#sl-prompt textarea").value, /^Tom had a small red boat/);
  assert.equal(surelock.page.now.prompt, document.querySelector("#sl-prompt textarea").value);
  find(".sl-prompt-box").dispatchEvent(new window.KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  assert.ok(find(".sl-prompt-box").hidden);
});

test("a prompt that the tokenizer takes apart into bytes is warned of, and an own run is no recording", async () => {
  const { find, source, surelock, live, pass } = await open("", { recorded: small() });
  assert.ok(!find(".sl-recording").hidden);
  const run = async (piece) => {
    live.press({ model: "stories", prompt: "x", lanes: JSON.stringify({ lanes: [] }) });
    await settled();
    const { header, pieces } = small();
    const prompt = { prompt_tokens: new Array(12).fill(10), length: 14 };
    source.asked.at(-1).send({
      run: `r${source.asked.length}`,
      open: { header: { ...header, ...prompt }, pieces: { ...pieces, 10: piece } },
      pausable: true,
    });
    await pass(20);
    return find(".sl-status").textContent;
  };
  surelock.page.set({ knows: "tales" });
  assert.equal(await run([0xd0]), "This model knows tales. It reads this prompt almost byte by byte: expect nonsense.");
  assert.equal(await run(" tale"), "");
  surelock.page.set({ foreign: true });
  assert.match(find(".sl-prompt-box .sl-writes").textContent, /expect nonsense/, "already while it is typed");
  surelock.page.set({ tooLong: "900 tokens: shorten it." });
  assert.equal(find(".sl-prompt-box .sl-writes").textContent, "900 tokens: shorten it.");
  assert.ok(find(".sl-recording").hidden);
});

test("a lesson parts the blocks that it speaks of, and refuses cells that it does not ask for", async () => {
  const { stage, find } = await open("?lesson=unmasking&page=3", { recorded: STORIES });
  stage.redraw();
  assert.equal(stage.sides[0].grid.view.block, 32);
  const { trace, cells, view } = stage;
  const said = () => find(".sl-question [role=status]").textContent;
  const written = trace.lanes[0].tokens(view.step).findIndex((id, p) => id >= 0 && p >= trace.promptLength);
  for (const [cell, why] of [
    [0, "That is the prompt: pin another position."],
    [written, "A token stands there already: pin a masked position."],
  ]) {
    cells.pin(cell);
    assert.deepEqual([said(), stage.view.pins], [why, []]);
  }
  cells.pin(trace.n - 1);
  assert.deepEqual(stage.view.pins, [trace.n - 1]);
  stage.lessons.go(4);
  stage.redraw();
  assert.equal(stage.sides[0].grid.view.block, 0);
});

test("a lesson that is left gives back the clock, also where another was begun in it", async () => {
  const { stage } = await open("", { recorded: STORIES });
  const { lessons } = stage;
  for (let i = 0; i < 2; i++) await lessons.begin(lessons.lessons[0]);
  assert.equal(stage.view.byClock, false);
  lessons.leave();
  assert.equal(stage.view.byClock, true);
});

test("a run of a learner's own begins in the browser where that decodes", async () => {
  const { stage, document } = await open("?lesson=unmasking&page=1", { recorded: STORIES });
  stage.lessons.go(stage.lessons.lesson.pages.findIndex(({ kind }) => kind === "run"));
  document.querySelector(".sl-lesson-tools button").click();
  await settled();
  assert.match(stage.lessons.progress.textContent, /^Your run begins in this browser\. You can stay/);
});

test("what a file's own view lacks in its run is said of the file", async () => {
  const { stage } = await open("", { recorded: small() });
  assert.match(stage.look({ step: 60 }, "the file"), /^This run lacks what the file asks for: its step 61/);
});

test("the curves are drawn in the width that they have by now, of the lanes that a lesson shows", async () => {
  await open("", { recorded: small() });
  const widths = [];
  const stage = { lower: document.createElement("div"), colours: { lanes: ["a", "b"], pins: [] }, only: null };
  const sizes = new Map();
  globalThis.ResizeObserver = class {
    constructor(f) {
      this.f = f;
    }
    observe(node) {
      sizes.set(node, this.f);
    }
  };
  const drawn = [];
  const react = async (plot, lines, { width }) => {
    widths.push(width);
    drawn.push(lines.map(({ name }) => name));
    plot._fullLayout = {};
  };
  globalThis.window.Plotly = { react, relayout() {} };
  const curves = new Curves(stage, { plotly: null });
  curves.load(Trace.parse(small()));
  const before = widths.length;
  assert.equal(sizes.size, 4, "each chart's box is watched");
  for (const { plot } of curves.plots) Object.defineProperty(plot, "clientWidth", { value: 333 });
  await curves.draw();
  assert.deepEqual([...new Set(widths.slice(before))], [333]);
  const three = raceOf(["a", "b", "c"].map((id) => every(id, [{}])));
  three.header.timed_together = [{ lanes: ["b", "c"] }];
  curves.load(Trace.parse(three));
  curves.show(["b", "c"]);
  await curves.draw();
  assert.deepEqual(
    drawn.slice(-3),
    [
      ["b", "c"],
      ["b", "c"],
      ["b", "c"],
    ],
    "each has a clock beside the other",
  );
});

test("a page at rest asks for no frames", async () => {
  const { stage, pass } = await open("", { recorded: STORIES });
  stage.timeline.pause();
  await pass(4000);
  const frames = [];
  const frame = globalThis.requestAnimationFrame;
  globalThis.requestAnimationFrame = (f) => frames.push(f) && frame(f);
  await pass(2000);
  assert.deepEqual(frames, []);
});

test("a live curve ends at the cursor, also after the cursor has moved back", async () => {
  const { stage, pass } = await open("", { recorded: STORIES });
  const [{ strip, size }] = stage.charts.charts;
  let drawn = [];
  strip.canvas.getContext = () => pen({ lineTo: (x) => drawn.push(x) });
  const clear = () => {
    drawn = [];
  };
  Object.defineProperty(strip.canvas, "width", { set: clear });
  stage.charts.draw(stage.trace, stage.colours, stage.timeline.step);
  for (const step of [20, 5, 12, 3]) {
    stage.timeline.seek(step);
    await pass(100);
    const inCurve = drawn.filter((x) => x > 0 && x < size[0]); // lines of levels go from edge to edge
    assert.equal(Math.max(...inCurve), ((step + 0.5) * size[0]) / strip.columns, `step ${step}`);
  }
});

test("a term that is left and entered again at once stays explained", async () => {
  const { document, window, pass } = await open("", { recorded: STORIES });
  const term = document.querySelector(".sl-term");
  const move = async (type) => {
    term.dispatchEvent(Object.assign(new window.Event(type), { pointerType: "mouse" }));
    await pass(100);
  };
  term.focus();
  for (const type of ["pointerenter", "pointerleave", "pointerenter", "pointermove", "pointermove"]) await move(type);
  assert.equal(document.querySelector(".sl-glossary").hidden, false);
});
