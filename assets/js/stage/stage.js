// The stage: the parts of the race, views of the page's state, which move to one step together.
// It is the same in the page and in an exported replay.

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

const FIRST_MS = 3000; // of a page whose race does not rest at a stop: what moves comes first, and a chart takes a second
const CURVES_MS = 12_000; // until what stands beneath is fetched though nobody scrolled: the recorded race is over
const SUMMARY_MS = 4000;
const RUNS_MS = 700; // between two whole drawings of rasters and curves of a run that grows

/** The model and what all lanes share, in a line. */
function describe({ header: { model, lanes }, steps }) {
  const lengths = lanes.map(({ settings }) => settings.gen_length).filter(Boolean);
  const length = lengths.length ? `${count(lengths[0], "token")} in ${count(steps, "step")}` : null;
  return [model?.name, length].filter(Boolean).join(", ");
}

/** What chapters are made of, as a key: the steps of all lanes, and whether more come. */
const knownOf = ({ lanes, race }) => [race.live, ...lanes.map(({ count }) => count)].join(" ");

export class Stage {
  chapters = [];
  moments = [];
  redraw = redraw; // everything that is in sight, as it is now
  #looking = false; // half-way to what somebody asks to see
  #rested;
  #calm = new Promise((then) => {
    this.#rested = then;
    setTimeout(then, FIRST_MS);
  });

  /** root: an empty element. loads: see partsOf. options: {plotly: see Curves, source: see Share, fetchTop(lane, cell, step),
   * fetchAttended: see Inspector, stepLive, onLive: see Timeline, touching: see Touching, onUse: see Panels, lessons: see
   * Lessons} */
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

  /** Follows the window, and what comes into view. */
  #watch(plotly) {
    const { root, parts } = this;
    this.sight.watch([this.teller.node]);
    watchView(this.grids, () => this.drawRuns());
    new ResizeObserver(() => this.drawRuns()).observe(this.grids);
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
    if (plotly) beforeSeen(this.lower, () => parts.curves.use(), this.#calm, CURVES_MS);
    else parts.curves.use();
    beforeSeen(this.tabs.node, () => parts.panels.use(), this.#calm, CURVES_MS); // and what is printed
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

  /** Shows a trace; `play` starts it, `live` says that records are still coming, `keep` that it is the same run with other
   * lanes: pins and drawer stay. */
  show(trace, { play = false, live = false, label = "", step, keep = false } = {}) {
    if (!keep) {
      this.drawer?.close(); // it draws the trace that was on show
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

  /** The trace on show gets further records, from a step of the cursor on. */
  growOn(trace, step) {
    trace.race.live = true;
    this.timeline.load(trace, { live: true, step });
    this.#markChapters();
  }

  /** Says in the place of the grids why a link cannot be computed, and offers the recording. */
  instead(why) {
    const { recorded } = page.now;
    const show = () => this.show(recorded, { label: "A recorded run:" });
    const offer = recorded && h("button.sl-small", { onclick: show }, "Show the recording");
    this.root.dataset.instead = "true";
    this.floor.refusal.replaceChildren(h("p", why), ...(offer ? [offer] : []));
    this.#say({ text: "" });
  }

  /** What a person looks at in the run on show: the cursor's step from 0, positions pinned, and how the race is shown. */
  get view() {
    const { step, pins, colour } = page.now;
    return { step, pins: [...pins.keys()], byClock: this.timeline.byClock, colour };
  }

  /** Looks at that, as far as the run on show has it. Gives a sentence about what it has not, or "". whose: who asks for it. */
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

  /** Compares all lanes with this one. */
  refer(lane) {
    page.now.trace.reference = lane;
    this.#lay();
    this.#announce();
  }

  /** The trace on show has other lanes, or another reference, than before. */
  #lay() {
    const { trace } = page.now;
    setText(this.label, [this.caption, describe(trace)].filter(Boolean).join(" "));
    this.recording.hidden = !trace.lanes.every(({ recorded }) => recorded);
    this.floor.load(trace);
    this.#learn();
    this.teller.load();
    this.teller.node.style.setProperty("--sl-lines", Math.max(2, trace.others.length));
    this.quick.open = false;
    page.set({ laid: {} });
    this.#resize();
    this.timeline.mark(this.chapters);
  }

  #markChapters() {
    this.#learn();
    this.timeline.mark(this.chapters);
  }

  /** What the trace tells as far as it has come. */
  #learn() {
    const { trace } = page.now;
    this.learned = knownOf(trace);
    this.chapters = chapters(trace);
    this.moments = moments(trace, this.chapters);
  }

  #draw({ step, moving }) {
    const { trace } = page.now;
    if (!trace || !this.sides.length) return;
    const { sight } = this;
    sight.begin(moving);
    this.floor.draw(trace, step, moving);
    const over = isOver(trace, step) && page.now.waits !== "run"; // a verdict goes when another run begins
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
    if (this.learned !== knownOf(trace) && !teller.rest) this.#markChapters(); // no sooner than their sentences can be shown
    const now = () => (isOver(trace, step) ? "" : narrate(trace, step, this.chapters)); // there the verdict stands
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
    redraw(); // a moment may have a sentence now
    this.#announce();
  }

  #say({ text, kind = "note" }) {
    if (this.drawer?.tells(text)) return;
    setText(this.status, text);
    const passes = kind === "note" && (page.now.waits !== null || text.endsWith("…"));
    this.status.dataset.kind = passes ? "passing" : kind; // that moves nothing
  }

  /** Shows what a lesson's page speaks of and hides the rest, with what would give a prediction away; null shows all. */
  #teach(lesson) {
    const dataset = { shows: lesson?.parts.join(" "), guess: lesson?.guess };
    for (const [name, value] of Object.entries(dataset))
      if (value) this.root.dataset[name] = value;
      else delete this.root.dataset[name];
    if (lesson?.shows.includes("curves")) this.parts.curves.use();
    if (lesson?.shows.includes("gauges")) this.parts.panels.use(() => this.tabs.open(0));
    if (lesson?.shows.includes("texts")) for (const { details } of this.sides) details.open = true;
    this.resize(); // what is shown has other room now
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

  /** The pictures of the run, up to the cursor. */
  #drawRuns() {
    const { trace, step } = page.now;
    if (!trace || !this.colours || !inView(this.grids)) return;
    for (const side of this.sides) side.drawRun(trace, this.colours, step);
    this.charts.draw(trace, this.colours, step);
  }

  /** The screen reader's summary of what the grids show. It waits while a grid has the focus: there the cells speak. */
  #announce() {
    const { trace, step } = page.now;
    const focused = document.activeElement;
    const speaks = this.grids.contains(focused) && focused.matches("canvas");
    if (trace && !speaks) setText(this.summary, summary(trace, step));
  }
}
