// The stage shows a race. Its parts are views of the page's state, and show the same step.
// The page and an exported replay have the same stage.

import { beforeSeen, count, h, inView, isNarrow, perFrame, setText, throttle, watchView } from "../dom.js";
import { page, redraw } from "../run/state.js";
import { chapters } from "../trace/chapters.js";
import { touchesOf } from "../trace/touches.js";
import { Charts } from "./charts.js";
import { ColourBy } from "./colourby.js";
import { Floor } from "./floor.js";
import { timelineKeys } from "./keys.js";
import { isOver, moments, narrate, spokenCell } from "./narrator.js";
import { Numbers } from "./numbers.js";
import { outline, quickShare } from "./outline.js";
import { partsOf } from "./part.js";
import { Sight } from "./sight.js";
import { summary } from "./spoken.js";
import { Teller } from "./teller.js";
import { onThemeChange, PIN_COLOURS, palette } from "./theme.js";
import { Timeline } from "./timeline.js";

const FIRST_MS = 3000; // the parts beneath wait so long for a race without stops: drawing a chart takes a second
const CURVES_MS = 12_000; // after this time they are loaded although nobody scrolled: the recorded race has ended
const SUMMARY_MS = 4000;
const RUNS_MS = 700; // the time between two drawings of whole rasters and charts while a run grows

/** A line about the model and the settings that all lanes share. */
function describe({ header: { model, lanes }, steps }) {
  const lengths = lanes.map(({ settings }) => settings.gen_length).filter(Boolean);
  const length = lengths.length ? `${count(lengths[0], "token")} in ${count(steps, "step")}` : null;
  return [model?.name, length].filter(Boolean).join(", ");
}

/** A key of the data from which chapters are made: the numbers of steps of all lanes, and whether more steps come. */
const knownOf = ({ lanes, race }) => [race.live, ...lanes.map(({ count }) => count)].join(" ");

/**
 * The options of a stage, which its parts read.
 * @typedef {object} StageOptions
 * @property {?function} plotly see Curves
 * @property {object} source see Share
 * @property {function} fetchTop see Inspector
 * @property {function} fetchAttended see Inspector
 * @property {function(): boolean} stepLive asks for a step of a live run, see `onStepPastEnd` of Timeline
 * @property {function} onLive see Timeline
 * @property {?object} touching see Touching
 * @property {?function} onUse see Panels
 * @property {object} lessons see Lessons
 */

/** The stage. */
export class Stage {
  chapters = [];
  moments = [];
  redraw = redraw; // draws everything in view again
  #looking = false; // whether `look` is changing the view
  #rested;
  #calm = new Promise((then) => {
    this.#rested = then;
    setTimeout(then, FIRST_MS);
  });

  /**
   * @param {HTMLElement} root an empty element
   * @param {object} loads see partsOf
   * @param {StageOptions} options
   */
  constructor(root, loads, options = {}) {
    const { stepLive = () => false, onLive = () => {} } = options;
    this.root = root;
    this.parts = partsOf(this, loads, options);
    this.timeline = this.#player({ onStepPastEnd: stepLive, onLive });
    const onclick = () => this.parts.lessons.use((come) => come.choose());
    this.lessonsButton = h("button.sl-small.sl-action.sl-lessons-button", { onclick }, "Lessons");
    this.sight = new Sight(redraw);
    this.resize = perFrame(() => this.#resize());
    this.teller = new Teller();
    this.quick = quickShare(this.parts);
    this.teller.node.append(this.quick);
    this.numbers = new Numbers();
    this.colouring = new ColourBy();
    this.charts = new Charts();
    this.floor = this.#lanes();
    this.teller.node.append(this.floor.partings);
    this.status = h("p.sl-status", { role: "status" });
    this.summary = h("p.sl-hidden", { "aria-live": "polite" });
    this.label = h("p.sl-run-label");
    this.recording = h("span.sl-recording", { title: "Press Run for a run of your own", hidden: true }, "Recording");
    this.lower = h("div.sl-lower");
    const { nodes, tabs } = outline(this, this.parts);
    this.tabs = tabs;
    root.append(...nodes);
    this.#watch(options.plotly);
    this.#theme();
    this.#follow();
  }

  /** The trace on show. */
  get trace() {
    return page.now.trace;
  }

  get sides() {
    return this.floor.sides;
  }

  /** The runs of this visit, for the browser's console and the tests. */
  get runs() {
    return { entries: page.now.runs };
  }

  get cells() {
    return this.floor.cells;
  }

  get grids() {
    return this.floor.grids;
  }

  #player({ onStepPastEnd, onLive }) {
    const onMove = (step, scrubbed) => page.set({ drawn: { step, moving: scrubbed || page.now.player.moving } });
    const onRest = () => {
      const { rest } = this.teller;
      if (rest) this.#rested();
      return rest;
    };
    const onRace = () => {
      this.drawRuns();
      this.#markChapters();
      this.#looked();
    };
    const onPlaying = () => this.#announce();
    const onSeek = () => this.#looked();
    const player = new Timeline({ onMove, onStepPastEnd, onLive, onRace, onRest, onPlaying, onSeek });
    page.set({ player });
    return player;
  }

  #lanes() {
    this.announceLater = throttle(() => this.#announce(), SUMMARY_MS);
    this.drawRuns = throttle(() => this.#drawRuns(), RUNS_MS);
    return new Floor({
      parts: this.parts,
      sight: this.sight,
      refer: (lane) => this.refer(lane),
      spoke: () => this.announceLater(),
      onLayout: () => this.#resize(),
      onScroll: perFrame(redraw),
      around: () => this.timeline.node.offsetHeight + this.charts.node.offsetHeight,
    });
  }

  /** Follows the size of the window, and the parts that come into view. */
  #watch(plotly) {
    const { root, parts } = this;
    this.sight.watch([this.teller.node]);
    watchView(this.grids, () => this.drawRuns());
    new ResizeObserver(() => this.drawRuns()).observe(this.grids);
    let seen = "";
    const fits = () => {
      // A phone's bars change the window's height while it scrolls.
      const size = `${root.clientWidth} ${isNarrow() ? "" : innerHeight}`;
      if (size === seen) return;
      seen = size;
      this.resize();
    };
    new ResizeObserver(fits).observe(root);
    addEventListener("resize", fits);
    onThemeChange(() => this.#theme());
    timelineKeys(this.timeline);
    if (plotly) beforeSeen(this.lower, () => parts.curves.use(), this.#calm, CURVES_MS);
    else parts.curves.use();
    // The panels also make the printed page.
    beforeSeen(this.tabs.node, () => parts.panels.use(), this.#calm, CURVES_MS);
    if (new URLSearchParams(location.search).has("lesson")) parts.lessons.use(); // see `arrive`
  }

  /** Follows the page's state. */
  #follow() {
    page.follow(["pins", "hover", "colour", "guesses", "estimate"], redraw);
    page.follow(["drawn"], ({ drawn }) => this.#draw(drawn));
    page.follow(["records"], () => page.now.trace && this.#grew());
    page.follow(["ended"], ({ ended, trace }) => ended && ended === trace && this.#finished());
    page.follow(["said"], ({ said }) => this.#say(said));
    page.follow(["lesson"], ({ lesson }) => this.#teach(lesson));
    page.follow(["presents"], () => this.resize());
    page.follow(["waits"], redraw);
    page.follow(["phase"], ({ phase }) => {
      this.root.dataset.state = phase;
    });
  }

  async arrive(search) {
    if (new URLSearchParams(search).has("lesson")) await this.parts.lessons.use((lessons) => lessons.arrive(search));
  }

  /**
   * Shows a trace.
   * @param {Trace} trace
   * @param {object} [options]
   * @param {boolean} [options.play] whether the race starts
   * @param {boolean} [options.live] whether records are still coming
   * @param {string} [options.label] the words before the line about the model
   * @param {number} [options.step] the cursor's step
   * @param {boolean} [options.keep] whether it is the same run with other lanes, so that pins and drawer stay
   */
  show(trace, { play = false, live = false, label = "", step, keep = false } = {}) {
    if (!keep) {
      this.drawer?.close(); // the drawer shows the former trace
      page.set({ pins: new Map(), hover: -1 });
    }
    trace.race.live = live;
    trace.race.byClock = this.timeline.byClock;
    delete this.root.dataset.instead;
    this.floor.refusal.replaceChildren();
    page.set({ trace, touches: touchesOf(trace) });
    if (page.now.touches) this.parts.touching.use();
    this.caption = label;
    const first = live || play ? -1 : trace.race.last;
    this.timeline.load(trace, { live, step: step ?? first });
    this.#lay();
    if (play) this.timeline.play({ first: true });
  }

  /** Called when the trace on show gets further records, from a step of the cursor on. */
  growOn(trace, step) {
    trace.race.live = true;
    this.timeline.load(trace, { live: true, step });
    this.#markChapters();
  }

  /** Shows in place of the grids the reason why a link cannot be computed, and a button for the recording. */
  instead(why) {
    const { recorded } = page.now;
    const show = () => this.show(recorded, { label: "A recorded run:" });
    const offer = recorded && h("button.sl-small", { onclick: show }, "Show the recording");
    this.root.dataset.instead = "true";
    this.floor.refusal.replaceChildren(h("p", why), ...(offer ? [offer] : []));
    this.#say({ text: "" });
  }

  /** The view of the run on show: the cursor's step from 0, the pinned positions, the clock, and the colours. */
  get view() {
    const { step, pins, colour } = page.now;
    return { step, pins: [...pins.keys()], byClock: this.timeline.byClock, colour };
  }

  /**
   * Sets the view, as far as the run on show has it. Returns a sentence about missing steps and positions, or "".
   * whose: the source of the view, for the sentence.
   */
  look({ step, pins = [], byClock = this.timeline.byClock, colour = page.now.colour }, whose = "the link") {
    const { n, race } = page.now.trace;
    this.#looking = true;
    this.timeline.setRace(byClock);
    this.colouring.choose(colour);
    const there = pins.filter((cell) => cell >= 0 && cell < n).slice(0, PIN_COLOURS);
    page.set({ pins: new Map(there.map((cell, number) => [cell, number])), hover: there.at(-1) ?? -1 });
    if (there.length && !page.now.lesson && !isNarrow()) this.cells.open(there.at(-1), this.sides.at(-1));
    if (step !== undefined) this.timeline.seek(step, -1);
    this.#looking = false;
    this.#looked();
    const missing = [];
    if (step > race.last) missing.push(`its step ${step + 1} (this run has ${race.last + 1})`);
    if (there.length < pins.length) missing.push("some of its pinned positions");
    if (page.now.colour !== colour) missing.push(`its colours by “${colour.slice(0, 20)}”`);
    return missing.length ? `This run lacks what ${whose} asks for: ${missing.join(" and ")}.` : "";
  }

  #looked() {
    if (!this.#looking) page.set({ looked: {} });
  }

  reveal(trace) {
    this.show(trace);
    this.root.scrollIntoView({ block: "start" });
    this.#looked();
  }

  /** Makes a lane the reference, with which all lanes are compared. */
  refer(lane) {
    page.now.trace.reference = lane;
    this.#lay();
    this.#announce();
  }

  /** Called when the trace on show has other lanes or another reference. */
  #lay() {
    const { trace } = page.now;
    setText(this.label, [this.caption, describe(trace)].filter(Boolean).join(" "));
    this.recording.hidden = !trace.lanes.every(({ recorded }) => recorded);
    this.floor.load(trace);
    this.#learn();
    this.teller.load();
    this.teller.node.style.setProperty("--sl-lines", Math.max(2, trace.others.length));
    this.quick.open = false;
    page.set({ laid: { trace } });
    this.#resize();
    this.timeline.mark(this.chapters);
  }

  #markChapters() {
    this.#learn();
    this.timeline.mark(this.chapters);
  }

  /** Computes the chapters of the trace so far. */
  #learn() {
    const { trace } = page.now;
    this.learned = knownOf(trace);
    this.chapters = chapters(trace);
    this.moments = moments(trace, this.chapters);
  }

  #draw({ step, moving }) {
    const { trace, laid } = page.now;
    if (!trace || laid.trace !== trace) return; // the grids and charts are still those of another trace
    const { sight } = this;
    sight.begin(moving);
    this.floor.draw(trace, step, moving);
    const over = isOver(trace, step) && page.now.waits !== "run"; // the verdict disappears when another run begins
    Object.assign(this.root.dataset, { over, step, count: trace.count });
    for (const side of this.sides) side.part(trace, over && trace.lanes.length > 1, step);
    if (sight.reads(this.teller.node)) this.#tell(step, over);
    this.charts.moveTo(trace, step);
    this.numbers.draw(trace, step);
    if (step >= 0 && !this.timeline.playing) this.announceLater();
  }

  #tell(step, over) {
    const { trace } = page.now;
    const { timeline, teller } = this;
    if (this.learned !== knownOf(trace) && !teller.rest) this.#markChapters(); // when their sentences can be shown
    // At the end the verdict is shown instead.
    const now = () => (isOver(trace, step) ? "" : narrate(trace, step, this.chapters));
    const { subject, race } = trace;
    const ends = subject.endsAt(race.reached(subject, step));
    const moves = timeline.moving || timeline.playing;
    const spokenStep = teller.follow(step, { moments: this.moments, now, held: timeline.held, moves, ends, over });
    if (over) teller.headline.show(trace, step);
    this.floor.tie(spokenStep === null ? null : spokenCell(trace, spokenStep, this.chapters));
  }

  #grew() {
    this.timeline.grew();
    this.drawRuns();
  }

  #finished() {
    this.timeline.finish();
    this.drawRuns();
    this.#markChapters();
    redraw(); // the present step may be a chapter now
    this.#announce();
  }

  #say({ text, kind = "note" }) {
    if (this.drawer?.tells(text)) return;
    setText(this.status, text);
    const passes = kind === "note" && (page.now.waits !== null || text.endsWith("…"));
    this.status.dataset.kind = passes ? "passing" : kind; // a passing sentence does not move the page
  }

  /** Shows only the parts that a lesson's page names, and hides what would reveal the answer. null shows all parts. */
  #teach(lesson) {
    const dataset = { shows: lesson?.parts.join(" "), guess: lesson?.guess };
    for (const [name, value] of Object.entries(dataset))
      if (value) this.root.dataset[name] = value;
      else delete this.root.dataset[name];
    if (lesson?.shows.includes("curves")) this.parts.curves.use();
    if (lesson?.shows.includes("gauges")) this.parts.panels.use(() => this.tabs.open(0));
    if (lesson?.shows.includes("texts")) for (const { details } of this.sides) details.open = true;
    this.resize(); // the visible parts have another size
  }

  #theme() {
    this.colours = palette(this.root);
    this.floor.colours = this.colours;
    this.curves?.theme(this.colours);
    this.#resize();
  }

  #resize() {
    const { trace } = page.now;
    if (!trace || !this.sides.length) return;
    this.floor.resize(trace);
    this.#drawRuns();
    redraw();
  }

  /** Draws the rasters and charts of the run up to the cursor. */
  #drawRuns() {
    const { trace, step } = page.now;
    if (!trace || !this.colours || !inView(this.grids)) return;
    for (const side of this.sides) side.drawRun(trace, this.colours, step);
    this.charts.draw(trace, this.colours, step);
  }

  /**
   * Updates the summary for screen readers. While a grid has the focus it waits, since the cells are read aloud then.
   */
  #announce() {
    const { trace, step } = page.now;
    const focused = document.activeElement;
    const speaks = this.grids.contains(focused) && focused.matches("canvas");
    if (trace && !speaks) setText(this.summary, summary(trace, step));
  }
}
