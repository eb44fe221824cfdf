// The stage: puts the parts together and moves them all to one step. It is the same in the page and in an exported replay.

import { beforeSeen, count, h, inView, isNarrow, perFrame, setText, throttle, watchView } from "../dom.js";
import { Visit } from "../panels/visit.js";
import { besideParents } from "../run/branching.js";
import { page } from "../run/state.js";
import { chapters } from "../trace/chapters.js";
import { touchesOf } from "../trace/touches.js";
import { Cells } from "./cells.js";
import { ColourBy } from "./colourby.js";
import { draw, drawGrids, tallest } from "./drawing.js";
import { Gauges } from "./gauges.js";
import { timelineKeys } from "./keys.js";
import { LongText } from "./longtext.js";
import { moments, narrate } from "./narrator.js";
import { Numbers } from "./numbers.js";
import { outline, quickShare } from "./outline.js";
import { partsOf } from "./part.js";
import { Presenter } from "./presenter.js";
import { Side } from "./side.js";
import { Sight } from "./sight.js";
import { summary } from "./spoken.js";
import { Teller } from "./teller.js";
import { onThemeChange, PIN_COLOURS, palette } from "./theme.js";
import { Timeline } from "./timeline.js";

const FIRST_MS = 3000; // of a page whose race does not rest at a stop: what moves comes first, and a chart takes a second
const CURVES_MS = 12_000; // until what stands beneath is fetched though nobody scrolled: the recorded race is over

/** The model and what all lanes share, in a line. */
function describe({ header: { model, lanes }, steps }) {
  const lengths = lanes.map(({ settings }) => settings.gen_length).filter(Boolean);
  const length = lengths.length ? `${count(lengths[0], "token")} in ${count(steps, "step")}` : null;
  return [model?.name, length].filter(Boolean).join(", ");
}

export class Stage {
  #rested;
  #calm = new Promise((then) => {
    this.#rested = then;
    setTimeout(then, FIRST_MS);
  });

  /** root: an empty element. loads: see partsOf. options: {plotly: see Curves, source: see Share, fetchTop(lane, cell, step), fetchAttended: see Inspector, stepLive, onLive: see Timeline, touching: see Touching, onUse: see Runs, onView() is told that something else is looked at, onRun(trace, source) that a run joined the table, lessons: see Lessons} */
  constructor(root, loads, options = {}) {
    const { plotly, stepLive = () => false, onLive = () => {}, onView = () => {}, onRun = () => {} } = options;
    Object.assign(this, { root, sides: [], chapters: [], moments: [], onRun });
    this.parts = partsOf(this, loads, options);
    const choose = () => this.parts.lessons.use((come) => come.choose());
    this.lessonsButton = h("button.sl-small.sl-action.sl-lessons-button", { onclick: choose }, "Lessons");
    this.onView = () => {
      if (this.looking) return; // half-way
      onView();
      this.lessons?.looked();
    };
    this.gauges = new Gauges();
    this.timeline = new Timeline({
      onMove: (step, scrubbed) => draw(this, step, scrubbed || this.timeline.moving),
      onPlaying: () => this.#announce(),
      onSeek: () => this.onView(),
      onStepPastEnd: stepLive,
      onLive,
      onRace: () => this.#raced(),
      onRest: () => {
        this.#rested();
        return this.teller.rest;
      },
    });
    this.runs = new Visit();
    this.resize = perFrame(() => this.#resize());
    this.sight = new Sight(() => this.redraw());
    this.status = h("p.sl-status", { role: "status" });
    this.summary = h("p.sl-hidden", { "aria-live": "polite" });
    this.label = h("p.sl-run-label");
    this.teller = new Teller();
    this.teller.node.append(quickShare(this));
    this.numbers = new Numbers();
    this.recording = h("span.sl-recording", { title: "Press Run for a run of your own", hidden: true }, "Recording");
    this.cells = new Cells(this);
    this.colouring = new ColourBy(this);
    this.long = new LongText({ onLayout: () => this.#resize(), onScroll: perFrame(() => this.redraw()) });
    this.grids = h("section.sl-grids", { "aria-label": "Token grids" });
    this.refusal = h("div.sl-instead", { role: "alert" });
    this.floor = h("div.sl-floor", this.refusal, this.grids);
    this.lower = h("div.sl-lower");
    this.texts = h("section.sl-texts", { "aria-label": "Texts" });
    this.presenter = new Presenter(this);
    root.append(...outline(this));
    this.#watch(plotly);
    this.#theme();
  }

  /** The trace on show. */
  get trace() {
    return page.now.trace;
  }

  /** Follows the window and the page's state, and what comes into view. */
  #watch(plotly) {
    const { root } = this;
    this.announceLater = throttle(() => this.#announce(), 4000);
    this.drawRasters = throttle(() => this.#drawRasters(), 700);
    watchView(this.grids, () => this.drawRasters());
    new ResizeObserver(() => this.drawRasters()).observe(this.grids);
    this.sight.watch([this.teller.node, this.gauges.node]);
    let seen = "";
    const fits = () => {
      const size = `${root.clientWidth} ${isNarrow() ? "" : innerHeight}`; // a phone's bars come and go while it scrolls
      if (size === seen) return;
      seen = size;
      this.resize();
    };
    new ResizeObserver(fits).observe(root);
    addEventListener("resize", fits);
    onThemeChange(() => this.#theme());
    timelineKeys(this.timeline);
    if (plotly) beforeSeen(this.lower, () => this.parts.curves.use(), this.#calm, CURVES_MS);
    else this.parts.curves.use();
    beforeSeen(this.tabs.node, () => this.parts.panels.use(), this.#calm, CURVES_MS); // and what is printed
    if (new URLSearchParams(location.search).has("lesson")) this.parts.lessons.use(); // see `arrive`
    page.follow(["pins"], () => this.#pinned());
    page.follow(["hover"], () => this.redraw());
  }

  /** Whether a lesson's page leaves out a part of the stage. */
  hides(part) {
    return this.lessons?.hides(part) ?? false;
  }

  async arrive(search) {
    if (new URLSearchParams(search).has("lesson")) await this.parts.lessons.use((lessons) => lessons.arrive(search));
  }

  /** Draws the curves of these lanes alone, by their ids; null: of all. */
  showCurves(only) {
    this.only = only;
    this.curves?.show(only);
  }

  /** Shows a trace; `play` starts it, `live` says that records are still coming, `keep` that it is the same run with other lanes: pins and drawer stay. */
  show(trace, { play = false, live = false, label = "", step, keep = false } = {}) {
    if (!keep) {
      this.drawer?.close(); // it draws the trace that was on show
      page.set({ pins: new Map(), hover: -1 });
    }
    trace.race.live = live;
    trace.race.byClock = this.timeline.byClock;
    delete this.root.dataset.instead;
    this.refusal.replaceChildren();
    page.set({ trace, touches: touchesOf(trace) });
    if (page.now.touches) this.parts.touching.use();
    this.caption = label;
    const first = live || play ? -1 : trace.race.last;
    this.timeline.load(trace, { live, step: step ?? first });
    this.lanesChanged();
    const stops = this.moments.filter(({ name }) => name !== "Verdict");
    if (play) this.timeline.play({ stops: stops.map(({ step: at }) => at) });
    this.lessons?.shown(trace);
  }

  /** Says in the place of the grids why a link cannot be computed, and offers the recording. */
  instead(why) {
    const { recorded } = page.now;
    const show = () => this.show(recorded, { label: "A recorded run:" });
    const offer = recorded && h("button.sl-small", { onclick: show }, "Show the recording");
    this.root.dataset.instead = "true";
    this.refusal.replaceChildren(h("p", why), ...(offer ? [offer] : []));
    this.say("");
  }

  add(trace, source) {
    this.runs.add(trace, source);
    this.panels?.runs.draw();
    this.onRun(trace, source);
  }

  /** What a person looks at in the run on show: the cursor's step from 0, positions pinned, and how the race is shown. */
  get view() {
    const { step, pins } = page.now;
    return { step, pins: [...pins.keys()], byClock: this.timeline.byClock, colour: this.colouring.name };
  }

  /** Looks at that, as far as the run on show has it. Gives a sentence about what it has not, or "". whose: who asks for it. */
  look({ step, pins = [], byClock = this.timeline.byClock, colour = this.colouring.name }, whose = "the link") {
    const { n } = this.trace;
    const { last } = this.trace.race;
    this.looking = true;
    this.timeline.setRace(byClock);
    this.colouring.choose(colour);
    const there = pins.filter((cell) => cell >= 0 && cell < n).slice(0, PIN_COLOURS);
    page.set({ pins: new Map(there.map((cell, colour) => [cell, colour])), hover: there.at(-1) ?? -1 });
    if (there.length && !this.lessons?.open && !isNarrow()) this.cells.open(there.at(-1), this.sides.at(-1));
    if (step !== undefined) this.timeline.seek(step, -1);
    this.looking = false;
    this.onView();
    const missing = [];
    if (step > last) missing.push(`its step ${step + 1} (this run has ${last + 1})`);
    if (there.length < pins.length) missing.push("some of its pinned positions");
    if (this.colouring.name !== colour) missing.push(`its colours by “${colour.slice(0, 20)}”`);
    return missing.length ? `This run lacks what ${whose} asks for: ${missing.join(" and ")}.` : "";
  }

  /** The trace on show has other lanes, or another reference, than before. */
  lanesChanged() {
    const { trace } = this;
    this.cells.tip.hidden = true; // it speaks of a grid that goes
    setText(this.label, [this.caption, describe(trace)].filter(Boolean).join(" "));
    this.sides = besideParents(trace.lanes).map((lane) => new Side(lane, trace.lanes.indexOf(lane), this));
    this.grids.dataset.lanes = trace.lanes.length;
    this.recording.hidden = !trace.lanes.every(({ recorded }) => recorded);
    this.grids.replaceChildren(...this.sides.map(({ node }) => node));
    this.texts.replaceChildren(...this.sides.map(({ more }) => more));
    this.texts.dataset.lanes = trace.lanes.length;
    this.sight.watch(this.sides.flatMap(({ box, details }) => [box, details]));
    const boxes = this.sides.map(({ box }) => box);
    this.long.load(trace.n, boxes);
    this.colouring.load(trace);
    this.#learn();
    this.teller.load();
    this.teller.node.style.setProperty("--sl-lines", Math.max(2, trace.others.length));
    this.numbers.load(trace);
    this.gauges.load(trace);
    this.drawer?.load(trace);
    this.drawer?.inspector.drawPins();
    this.quick.open = false;
    this.#resize();
    this.curves?.load(trace);
    this.panels?.load(trace);
    this.#drawRasters();
    this.timeline.mark(this.chapters);
    this.redraw();
  }

  #raced() {
    this.#drawRasters();
    this.#markChapters();
    this.onView();
  }

  #markChapters() {
    this.#learn();
    this.timeline.mark(this.chapters);
  }

  /** What the trace tells as far as it has come. */
  #learn() {
    this.learned = this.trace.count;
    this.chapters = chapters(this.trace);
    this.moments = moments(this.trace, this.chapters);
  }

  tell(step) {
    const { trace, timeline, teller } = this;
    if (this.learned < trace.count && !teller.left) this.#learn(); // no sooner than it can be told
    const now = () => narrate(trace, step, this.chapters);
    const moves = (timeline.moving || timeline.playing) && this.root.dataset.over !== "true"; // the verdict is a moment
    teller.follow(step, { moments: this.moments, now, held: timeline.held, moves });
  }

  #drawRasters() {
    if (!this.trace || !this.colours || !inView(this.grids)) return;
    for (const side of this.sides) side.drawRun(this.trace, this.colours);
  }

  nodeOf = (lane) => this.sides.find((side) => side.lane === lane).node;

  refer(lane) {
    this.trace.reference = lane;
    this.lanesChanged();
    this.panels?.runs.draw();
    this.#announce();
  }

  grew() {
    this.timeline.grew();
    this.curves?.redraw();
    this.panels?.analysis.redraw();
    this.drawRasters();
    this.drawer?.grew();
    this.touching?.grew();
    this.lessons?.grew(this.trace);
  }

  finish() {
    this.trace.race.live = false;
    this.colouring.load(this.trace);
    this.drawer?.finished();
    this.drawer?.inspector.drawPins();
    this.timeline.finish();
    this.curves?.draw();
    this.panels?.analysis.redraw();
    this.drawRasters();
    this.#markChapters();
    this.redraw(); // a moment may have a sentence now
    this.panels?.runs.draw();
    this.#announce();
    this.lessons?.finished(this.trace);
  }

  say(text, kind = "note") {
    if (this.drawer?.tells(text)) return;
    setText(this.status, text);
    const passes = kind === "note" && (page.now.waits !== null || text.endsWith("…"));
    this.status.dataset.kind = passes ? "passing" : kind; // that moves nothing
  }

  #pinned() {
    if (!this.trace) return;
    this.drawer?.inspector.drawPins();
    this.curves?.redraw();
    this.redraw();
  }

  redraw() {
    draw(this, page.now.step);
  }

  /** Draws the grids that are in sight, and nothing else. */
  redrawGrids() {
    const there = this.sides.filter(({ grid, box }) => grid.box && this.sight.has(box));
    drawGrids(this, there, page.now.step);
  }

  reveal(trace) {
    this.show(trace);
    this.root.scrollIntoView({ block: "start" });
    this.onView();
  }

  #theme() {
    this.colours = palette(this.root);
    this.curves?.theme(this.colours);
    this.drawRasters();
    this.#resize();
  }

  #resize() {
    if (!this.trace) return;
    const tall = tallest(this);
    for (const side of this.sides) side.resize(this.trace.n, this.colours, { whole: this.long.whole, tall });
    this.long.measure();
    this.redraw();
  }

  /** The screen reader's summary of what the grids show. It waits while a grid has the focus: there the cells speak. */
  #announce() {
    if (!this.trace || (this.grids.contains(document.activeElement) && document.activeElement.matches("canvas")))
      return;
    const { step } = page.now;
    setText(this.summary, summary(this.trace, step));
  }
}
