// The stage: puts the parts together and moves them all to one step. It is the same in the page and in an exported replay.

import {
  beforeSeen,
  count,
  h,
  inView,
  isNarrow,
  perFrame,
  reducedMotion,
  setText,
  throttle,
  watchView,
  zoomOf,
} from "../dom.js";
import { tabs } from "../panels/tabs.js";
import { Visit } from "../panels/visit.js";
import { besideParents } from "../run/branching.js";
import { page } from "../run/state.js";
import { chapters, writtenAt } from "../trace/chapters.js";
import { forkOf } from "../trace/prose.js";
import { ColourBy } from "./colourby.js";
import { Gauges } from "./gauges.js";
import { letterKeys, timelineKeys } from "./keys.js";
import { key, legend } from "./legend.js";
import { LongText } from "./longtext.js";
import { narrate, subject, verdict } from "./narrator.js";
import { Numbers } from "./numbers.js";
import { partsOf } from "./part.js";
import { Presenter } from "./presenter.js";
import { Side } from "./side.js";
import { Sight } from "./sight.js";
import { cellText, summary } from "./spoken.js";
import { Teller } from "./teller.js";
import { onThemeChange, PIN_COLOURS, palette } from "./theme.js";
import { Timeline } from "./timeline.js";

const GAP = 8; // pixels between the parts of the first screen
const FIRST_MS = 3000; // of a page whose race does not rest at a stop: what moves comes first, and a chart takes a second
const CURVES_MS = 12_000; // until what stands beneath is fetched though nobody scrolled: the recorded race is over

const PANELS = ["Analysis", "Runs", "Export", "About"]; // see panels/panels.js

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

  /** root: an empty element. loads: see partsOf. options: {plotly: see Curves, source: see Share, fetchTop(lane, cell, step), fetchAttended: see Inspector, stepLive, onLive: see Timeline, whatIf: see WhatIf, onUse: see Runs, onView() is told that something else is looked at, onRun(trace, source) that a run joined the table, lessons: see Lessons} */
  constructor(root, loads, options = {}) {
    const { plotly, stepLive = () => false, onLive = () => {}, onView = () => {}, onRun = () => {} } = options;
    Object.assign(this, { root, trace: null, sides: [], chapters: [], onRun });
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
      onMove: (step, scrubbed) => this.#draw(step, scrubbed || this.timeline.moving),
      onPlaying: () => this.#announce(),
      onSeek: () => this.onView(),
      onStepPastEnd: stepLive,
      onLive,
      onRace: () => this.#raced(),
      onRest: () => this.#rested(),
    });
    this.runs = new Visit();
    this.resize = perFrame(() => this.#resize());
    this.sight = new Sight(() => this.redraw());
    this.status = h("p.sl-status", { role: "status" });
    this.summary = h("p.sl-hidden", { "aria-live": "polite" });
    this.spoken = h("p.sl-hidden.sl-spoken", { "aria-live": "assertive" });
    this.label = h("p.sl-run-label");
    this.teller = new Teller();
    this.teller.node.append(this.#quick());
    this.numbers = new Numbers();
    this.tip = h("div.sl-tip", { hidden: true, "aria-hidden": "true" });
    this.colouring = new ColourBy(this);
    this.long = new LongText({ onLayout: () => this.#resize(), onScroll: perFrame(() => this.redraw()) });
    this.grids = h("section.sl-grids", { "aria-label": "Token grids" });
    this.floor = h("div.sl-floor", this.grids);
    this.lower = h("div.sl-lower");
    this.texts = h("section.sl-texts", { "aria-label": "Texts" });
    this.presenter = new Presenter(this);
    root.append(...this.#nodes());
    this.#watch(plotly);
    this.#theme();
  }

  /** What stands below each other. */
  #nodes() {
    this.timeline.node.append(this.presenter.button, this.#help());
    const looks = h("div.sl-bar-row", legend(), this.colouring.node, this.long.node);
    const numbers = ["Numbers", h("div.sl-all-numbers", this.gauges.node, looks)];
    const opens = (name) => () => this.parts.panels.use((all) => all.open(name));
    const panels = PANELS.map((name) => [name, h("div", { "data-panel": name }), opens(name)]);
    this.tabs = tabs([numbers, ...panels], "More about this run");
    const first = [this.teller.node, h("div.sl-above", this.numbers.node, key()), this.floor];
    const dock = h("div.sl-dock", this.status, this.timeline.node);
    const further = [this.lower, this.texts, this.label, this.tabs.node];
    return [...first, dock, ...further, this.summary, this.spoken, this.tip];
  }

  /** Follows the window and the page's state, and what comes into view. */
  #watch(plotly) {
    const { root } = this;
    this.announceLater = throttle(() => this.#announce(), 4000);
    this.drawRasters = throttle(() => this.#drawRasters(), 700);
    watchView(this.grids, () => this.drawRasters());
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

  /** What the end of a race offers at once, folded. */
  #quick() {
    const fetch = () => this.quick.open && this.parts.panels.use();
    this.quick = h("details.sl-quick", { ontoggle: fetch }, h("summary.sl-small", "Share"));
    return this.quick;
  }

  #help() {
    const open = () => this.parts.panels.use(({ help }) => help.open || help.showModal());
    letterKeys({ "?": open });
    const told = { "aria-label": "Keys", title: "Keys (?)" };
    return h("button.sl-tool.sl-help", { ...told, onclick: open }, "?");
  }

  openDrawer(cell, { lane }) {
    return this.parts.drawer.use((drawer) => {
      const side = this.sides.find((each) => each.lane === lane); // another trace may be on show by now
      const led = this.led?.lane === lane; // the arrows may have gone on while the part came
      if (side && !this.#hides("inspector")) drawer.open(led ? page.now.hover : cell, side);
    });
  }

  /** Whether a lesson's page leaves out a part of the stage. */
  #hides(part) {
    return this.lessons?.hides(part) ?? false;
  }

  /** Goes to the lesson that an address names, if it names one. */
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
      this.tapped = -1;
      page.set({ pins: new Map(), hover: -1 });
    }
    this.trace = trace;
    trace.race.live = live;
    trace.race.byClock = this.timeline.byClock;
    this.caption = label;
    this.lanesChanged();
    const first = live ? -1 : trace.race.last;
    this.timeline.load(trace, { live, step: step ?? (play ? 0 : first) });
    if (play) this.timeline.play({ stops: this.chapters.filter(({ stop }) => stop).map(({ step: at }) => at) });
    this.lessons?.shown(trace);
  }

  add(trace, source) {
    this.runs.add(trace, source);
    this.panels?.runs.draw();
    this.onRun(trace, source);
  }

  /** What a person looks at in the run on show: the cursor's step from 0, positions pinned, and how the race is shown. */
  get view() {
    const { step, pins } = page.now;
    return { step, pins: [...pins.keys()], byClock: this.timeline.byClock, colour: this.colourBy };
  }

  /** Looks at that, as far as the run on show has it. Gives a sentence about what it has not, or "". */
  look({ step, pins = [], byClock = this.timeline.byClock, colour = this.colourBy }) {
    const { n } = this.trace;
    const { last } = this.trace.race;
    this.looking = true;
    this.timeline.setRace(byClock);
    this.colourBy = colour;
    const there = pins.filter((cell) => cell >= 0 && cell < n).slice(0, PIN_COLOURS);
    page.set({ pins: new Map(there.map((cell, colour) => [cell, colour])), hover: there.at(-1) ?? -1 });
    if (there.length && !this.lessons?.open && !isNarrow()) this.openDrawer(there.at(-1), this.sides.at(-1));
    if (step !== undefined) this.timeline.seek(step);
    this.looking = false;
    this.onView();
    const missing = [];
    if (step > last) missing.push(`its step ${step + 1} (this run has ${last + 1})`);
    if (there.length < pins.length) missing.push("some of its pinned positions");
    if (this.colourBy !== colour) missing.push(`its colours by “${colour.slice(0, 20)}”`);
    return missing.length ? `This run lacks what the link asks for: ${missing.join(" and ")}.` : "";
  }

  /** The trace on show has other lanes, or another reference, than before. */
  lanesChanged() {
    const { trace } = this;
    this.tip.hidden = true; // it speaks of a grid that goes
    setText(this.label, [this.caption, describe(trace)].filter(Boolean).join(" "));
    this.sides = besideParents(trace.lanes).map((lane) => new Side(lane, trace.lanes.indexOf(lane), this));
    this.grids.dataset.lanes = trace.lanes.length;
    this.grids.replaceChildren(...this.sides.map(({ node }) => node));
    this.texts.replaceChildren(...this.sides.map(({ more }) => more));
    this.texts.dataset.lanes = trace.lanes.length;
    this.sight.watch(this.sides.flatMap(({ box, details }) => [box, details]));
    const boxes = this.sides.map(({ box }) => box);
    this.long.load(trace.n, boxes);
    this.colouring.load(trace);
    this.chapters = chapters(trace);
    this.#makeRoom(this.chapters);
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
    this.timeline.drawTicks();
    this.redraw();
  }

  /** Lanes are now shown by the clock, or step by step. */
  #raced() {
    this.#drawRasters();
    this.#markChapters();
    this.onView();
  }

  #markChapters() {
    this.chapters = chapters(this.trace);
    this.timeline.mark(this.chapters);
  }

  #drawRasters() {
    if (!this.trace || !this.colours || !inView(this.grids)) return;
    for (const { raster } of this.sides) raster.draw(this.trace, this.colours);
    for (const { raster } of this.sides) raster.moveTo(page.now.step);
  }

  nodeOf = (lane) => this.sides.find((side) => side.lane === lane).node;

  /** Everything is shown beside this lane from now on. */
  refer(lane) {
    this.trace.reference = lane;
    this.lanesChanged();
    this.panels?.runs.draw();
    this.#announce();
  }

  /** Records were appended to the trace on show. */
  grew() {
    if (!this.hasRoom) this.#makeRoom(chapters(this.trace));
    this.timeline.grew();
    this.curves?.redraw();
    this.panels?.analysis.redraw();
    this.drawRasters();
    this.drawer?.grew();
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
    this.#makeRoom(this.chapters);
    this.redraw(); // a moment may have a sentence now
    this.panels?.runs.draw();
    this.#announce();
    this.lessons?.finished(this.trace);
  }

  say(text, kind = "note") {
    if (this.drawer?.tells(text)) return;
    setText(this.status, text);
    this.status.dataset.kind = kind;
  }

  pin(cell) {
    const pins = new Map(page.now.pins);
    if (!pins.delete(cell)) {
      const taken = new Set(pins.values());
      const free = Array.from({ length: PIN_COLOURS }, (_, i) => i).find((i) => !taken.has(i));
      if (free === undefined)
        return (this.drawer?.inspector ?? this).say(
          `At most ${PIN_COLOURS} positions can be pinned at once; unpin one first.`,
        );
      pins.set(cell, free);
    }
    page.set({ pins });
    this.onView();
  }

  #pinned() {
    if (!this.trace) return;
    this.drawer?.inspector.drawPins();
    this.curves?.redraw();
    this.redraw();
  }

  /** What the cells' fill tells: "state", or one of the names in values.js. */
  get colourBy() {
    return this.colouring.name;
  }
  set colourBy(name) {
    this.colouring.choose(name);
  }

  redraw() {
    this.#draw(page.now.step);
  }

  /** Shows a trace that was chosen elsewhere on the page. */
  reveal(trace, label = "") {
    this.show(trace, { label });
    this.root.scrollIntoView({ block: "start" });
    this.onView();
  }

  /** A click or Enter pins a cell and opens the drawer on it; of a finger's taps the first one shows it, and so does a click on a pinned cell that the drawer does not show. */
  press(side, cell, touched) {
    const hidden = this.#hides("inspector");
    const shows = touched ? cell !== this.tapped : page.now.pins.has(cell) && !hidden && !this.drawer?.shows(cell);
    this.tapped = cell;
    page.set({ hover: cell });
    if (!hidden) this.openDrawer(cell, side);
    if (shows) this.redraw();
    else this.pin(cell);
  }

  forget() {
    this.tapped = -1;
    this.redraw();
  }

  /** Room for the longest that the narrator will say, as far as it is known: what stands below must not jump. */
  #makeRoom(moments) {
    const { trace } = this;
    this.hasRoom = trace.lanes.every(({ count: steps }) => steps);
    if (!this.hasRoom) return this.teller.keep("");
    const told = [verdict(trace), ...moments.map(({ step }) => narrate(trace, step, moments))];
    this.teller.keep(told.reduce((a, b) => (b.length > a.length ? b : a)));
  }

  /** The pointer is on a cell of a side, or on none. */
  point(side, cell, event) {
    this.tip.hidden = cell < 0;
    if (cell < 0) return this.#leave();
    const other = cell !== page.now.hover || side !== this.pointed?.side;
    this.pointed = { side, cell };
    this.#writeTip(page.now.step);
    const box = this.root.getBoundingClientRect();
    const zoom = zoomOf(this.root);
    const x = Math.min((event.clientX - box.left) / zoom + 14, box.width / zoom - 260);
    this.tip.style.transform = `translate(${x}px, ${(event.clientY - box.top) / zoom + 18}px)`;
    if (!other) return;
    this.led = null;
    page.set({ hover: cell });
  }

  /** The pointer has left the grids: what the drawer speaks of stays marked. */
  #leave() {
    if (!this.drawer?.isOpen || this.led) return;
    page.set({ hover: this.drawer.cell });
  }

  #writeTip(step) {
    if (this.tip.hidden) return;
    const { side, cell } = this.pointed;
    setText(this.tip, cellText(this.trace, side.lane, cell, step));
  }

  focusCell(side, cell) {
    this.led = side;
    this.long.reveal(cell, side.grid);
    this.drawer?.follow(cell, side);
    page.set({ hover: cell });
    this.presenter.reveal(cell);
  }

  /** Speaks the cell that the keys have led to; again where a step makes it another, while its grid has the focus. */
  #speak(step) {
    const { led } = this;
    const { hover } = page.now;
    if (hover < 0 || !led || led.canvas !== document.activeElement) return;
    setText(this.spoken, cellText(this.trace, led.lane, hover, step));
  }

  #theme() {
    this.colours = palette(this.root);
    this.curves?.theme(this.colours);
    this.drawRasters();
    this.timeline.drawTicks();
    this.#resize();
  }

  #resize() {
    if (!this.trace) return;
    const tall = this.#tall();
    for (const side of this.sides) side.resize(this.trace.n, this.colours, { whole: this.long.whole, tall });
    this.long.measure();
    this.redraw();
  }

  /** How tall a grid may be so that all of them are in the first screen, in CSS pixels. */
  #tall() {
    const shown = this.sides.filter(({ node }) => node.offsetHeight); // a lesson hides lanes
    const rows = new Set(shown.map(({ node }) => node.offsetTop)).size;
    return this.#room() / rows - Math.max(...shown.map((side) => side.around)) - GAP;
  }

  /** How much of the first screen, or of that of a lesson's page, all grids may take. */
  #room() {
    const { open = false, card } = this.lessons ?? {};
    if (this.presenter.on) return open ? this.grids.clientHeight : Infinity;
    const first = open ? card.getBoundingClientRect().top : -scrollY;
    return innerHeight - (this.grids.getBoundingClientRect().top - first) - this.timeline.node.offsetHeight - 3 * GAP;
  }

  /** Everything at one step, or while the cursor moves what is in sight. Cheap: a canvas a lane and a few text nodes. */
  #draw(step, moving = false) {
    const { trace } = this;
    if (!trace || !this.sides.length) return;
    const { sight } = this;
    sight.begin(moving);
    const { lane: last } = this.sides.at(-1);
    const there = this.sides.filter(({ grid }) => grid.box); // a lesson hides what it does not speak of
    if (there.length) this.long.follow(step, last.at(trace.race.reached(last, step))?.unmasked ?? [], there[0].grid);
    const seen = there.filter(({ box }) => sight.has(box));
    this.#drawGrids(seen, step);
    const over = trace.lanes.every((lane) => lane.endsAt(trace.race.reached(lane, step)));
    this.root.dataset.over = over;
    for (const side of this.sides) {
      side.draw(trace, step, sight.reads(side.details));
      side.part(trace, over && trace.lanes.length > 1);
    }
    const stands = over || !moving || this.timeline.rests;
    if (sight.reads(this.teller.node)) this.teller.tell(narrate(trace, step, this.chapters), stands);
    this.numbers.draw(trace, step);
    if (sight.reads(this.gauges.node)) this.gauges.draw(trace, step);
    this.curves?.moveTo(trace.race.reached(subject(trace), step));
    this.drawer?.draw(step);
    this.#writeTip(step);
    if (!moving) this.#speak(step);
    this.presenter.follow((lane) => trace.race.reached(lane, step));
    this.root.dataset.step = step;
    this.root.dataset.count = trace.count;
    if (step >= 0 && !this.timeline.playing) this.announceLater();
  }

  #drawGrids(sides, step) {
    if (!sides.length) return;
    const { trace } = this;
    const lit = !((this.timeline.playing || this.timeline.follow) && reducedMotion());
    const base = this.sides.find(({ lane }) => lane === trace.reference);
    for (const side of new Set([base, ...sides])) side.label(trace, step);
    for (const side of sides) {
      const t = trace.race.reached(side.lane, step);
      side.drawGrid(trace, {
        step: t,
        states: this.drawer?.epsilon.states(side.lane, t),
        values: this.colouring.values(side.lane, t),
        seen: this.long.seen(side.grid),
        top: this.long.windowed ? this.long.top : 0,
        other: side === base ? null : base.labels.tokens,
        fresh: lit,
        hover: page.now.hover,
        pins: page.now.pins,
      });
    }
  }

  /** To the step in which the later of the two words at a fork is written; the drawer shows both distributions. */
  toFork(side, step) {
    const { trace } = this;
    const { position } = forkOf(trace, side.lane, step);
    page.set({ hover: position });
    this.timeline.seek(writtenAt(trace, side.lane, position));
    if (!this.#hides("inspector")) this.openDrawer(position, side);
  }

  /** The screen reader's summary of what the grids show. It waits while a grid has the focus: there the cells speak. */
  #announce() {
    if (!this.trace || (this.grids.contains(document.activeElement) && document.activeElement.matches("canvas")))
      return;
    const { step } = page.now;
    setText(this.summary, summary(this.trace, step));
    for (const side of this.sides) side.name(this.trace, step);
  }
}
