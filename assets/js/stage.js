// The stage: puts the parts together and moves them all to one step. It is the same in the page and in an exported replay.

import { about } from "./about.js";
import { Analysis } from "./analysis.js";
import { chapters, writtenAt } from "./chapters.js";
import { ColourBy } from "./colourby.js";
import { Curves, loadPlotly } from "./curves.js";
import { beforeSeen, count, h, inView, perFrame, reducedMotion, setText, throttle, watchView, zoomOf } from "./dom.js";
import { Epsilon } from "./epsilon.js";
import { Gauges } from "./gauges.js";
import { Handout } from "./handout.js";
import { Inspector } from "./inspector.js";
import { KeyHelp } from "./keyhelp.js";
import { timelineKeys } from "./keys.js";
import { legend } from "./legend.js";
import { Lessons } from "./lessons.js";
import { LongText } from "./longtext.js";
import { narrate, subject, verdict } from "./narrator.js";
import { isNarrow, LaneSwitch, Sheet } from "./phone.js";
import { Presenter } from "./presenter.js";
import { forkOf } from "./prose.js";
import { Runs } from "./runs.js";
import { Share } from "./share.js";
import { Side } from "./side.js";
import { Sight } from "./sight.js";
import { summary } from "./spoken.js";
import { tabs } from "./tabs.js";
import { onThemeChange, PIN_COLOURS, palette } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Trace } from "./trace.js";
import { WhatIf } from "./whatif.js";

const CURVES_MS = 12_000; // until what draws the curves is fetched though nobody scrolled: the recorded race is over

/** The model and what all contestants share, in a line. */
function describe({ header: { model, contestants }, steps }) {
  const lengths = contestants.map(({ settings }) => settings.gen_length).filter(Boolean);
  const length = lengths.length ? `${count(lengths[0], "token")} in ${count(steps, "step")}` : null;
  return [model?.name, length].filter(Boolean).join(", ");
}

export class Stage {
  /** root: an empty element. options: {plotly: url or null, source: see Share, fetchTop(trace, lane, cell, step), fetchAttended: see Attended, stepLive, onLive: see Timeline, whatIf: see WhatIf or null, onUse: see Runs, onView() is told that something else is looked at, onRun(trace, source) that a run joined the table, lessons: see Lessons, importing} */
  constructor(
    root,
    {
      plotly = null,
      source = {},
      fetchTop = null,
      fetchAttended = null,
      stepLive = () => false,
      onLive = () => {},
      onView = () => {},
      onRun = () => {},
      whatIf = null,
      onUse = null,
      lessons = {},
      importing = true,
    } = {},
  ) {
    Object.assign(this, { root, pins: new Map(), hover: -1, trace: null, sides: [], chapters: [], onRun });
    this.onView = () => {
      if (this.looking) return; // half-way
      onView();
      this.lessons.looked();
    };
    this.gauges = new Gauges();
    this.timeline = new Timeline({
      onMove: (step, scrubbed) => this.#draw(step, scrubbed || this.timeline.moving),
      onPlaying: () => this.#announce(),
      onSeek: () => this.onView(),
      onStepPastEnd: stepLive,
      onLive,
      onRace: () => this.#raced(),
    });
    this.curves = new Curves();
    this.epsilon = new Epsilon({ curves: this.curves, onChange: () => this.redraw(), race: whatIf?.race ?? null });
    this.whatIf = whatIf && new WhatIf(whatIf);
    this.inspector = new Inspector({
      onPin: (cell) => this.pin(cell),
      fetchTop: fetchTop && ((lane, cell, step) => this.#fetchTop(fetchTop, lane, cell, step)),
      fetchAttended,
      extra: this.whatIf?.node,
    });
    this.analysis = new Analysis();
    this.runs = new Runs({
      onShow: (trace) => this.#reveal(trace),
      onCompare: (sides) => this.#reveal(Trace.of(sides), "Compared:"),
      onUse,
    });
    this.share = new Share({
      source,
      view: () => this.view,
      onImport: importing
        ? (trace) => {
            this.add(trace, "imported");
            this.show(trace, { label: "Imported run:" });
            this.say(trace.view ? this.look(trace.view) : "");
            this.onView();
          }
        : null,
    });
    this.resize = perFrame(() => this.#resize());
    this.sight = new Sight(() => this.redraw());
    const link = source.link && ((trace) => source.link(trace, this.view));
    this.handout = new Handout({ root, trace: () => this.trace, link });
    this.lessons = new Lessons({ stage: this, ...lessons });
    this.status = h("p", { class: "sl-status", role: "status" });
    this.summary = h("p", { class: "sl-hidden", "aria-live": "polite" });
    this.spoken = h("p", { class: "sl-hidden sl-spoken", "aria-live": "assertive" });
    this.label = h("p", { class: "sl-run-label" });
    this.narrator = h("p", { class: "sl-narrator" });
    this.narratorRoom = h("p", { class: "sl-narrator sl-narrator-room", "aria-hidden": "true" });
    this.narratorBox = h("div", { class: "sl-narrator-box" }, this.narrator, this.narratorRoom);
    this.tip = h("div", { class: "sl-tip", hidden: true, "aria-hidden": "true" });
    this.colouring = new ColourBy({
      onChange: () => {
        this.redraw();
        this.onView();
      },
    });
    this.long = new LongText({ onLayout: () => this.#resize(), onScroll: perFrame(() => this.redraw()) });
    this.grids = h("section", { class: "sl-grids", "aria-label": "Token grids" });
    this.lanes = new LaneSwitch(this.grids);
    this.sheet = new Sheet({
      inspector: this.inspector.node,
      player: this.timeline.node,
      onClose: () => this.#forget(),
    });
    this.presenter = new Presenter({
      root,
      sides: () => this.sides,
      onChange: () => this.resize(),
    });
    this.help = new KeyHelp();
    this.timeline.node.append(this.presenter.button, this.help.button);
    const panels = [
      ["Analysis", this.analysis.node, () => this.analysis.redraw()],
      ["Runs", this.runs.node, () => this.runs.draw()],
      ["Lessons", this.lessons.node],
      ["Export", this.share.node],
      ["About", about()],
    ];
    this.tabs = tabs(panels, "More about this run");
    root.append(
      this.narratorBox,
      this.lessons.card,
      this.gauges.node,
      h("div", { class: "sl-bar-row" }, legend(), this.colouring.node, this.long.node, this.label),
      this.status,
      this.lanes.node,
      this.grids,
      this.timeline.node,
      h("div", { class: "sl-lower" }, this.curves.node, this.inspector.node),
      this.tabs.node,
      this.summary,
      this.spoken,
      this.tip,
      this.help.node,
    );
    this.announceLater = throttle(() => this.#announce(), 4000);
    this.drawRasters = throttle(() => this.#drawRasters(), 700);
    watchView(this.grids, () => this.drawRasters());
    this.sight.watch([this.narratorBox, this.gauges.node]);
    let wide = 0;
    this.observer = new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width === wide) return; // grids know no height
      wide = contentRect.width;
      this.resize();
    });
    this.observer.observe(root);
    this.stops = [
      onThemeChange(() => this.#theme()),
      timelineKeys(this.timeline),
      () => this.observer.disconnect(),
      this.presenter.stop,
      this.help.stop,
      this.sheet.stop,
      () => this.handout.stop(),
    ];
    if (plotly)
      beforeSeen(this.curves.node, () => loadPlotly(plotly).then((found) => this.curves.use(found)), CURVES_MS);
    else this.curves.use(window.Plotly ?? null);
    this.#theme();
  }

  destroy() {
    this.timeline.pause();
    for (const stop of this.stops) stop();
  }

  /** Shows a trace; `play` starts it, `live` says that records are still coming. */
  show(trace, { play = false, live = false, label = "", step } = {}) {
    this.trace = trace;
    trace.live = live;
    trace.byClock = this.timeline.byClock;
    this.pins.clear();
    this.hover = -1;
    this.tapped = -1;
    this.caption = label;
    this.lanesChanged();
    const first = live ? -1 : trace.last;
    this.timeline.load(trace, { live, step: step ?? (play ? 0 : first) });
    if (play) this.timeline.play();
    this.lessons.shown(trace);
  }

  /** Puts a run into the table. */
  add(trace, source) {
    this.runs.add(trace, source);
    this.onRun(trace, source);
  }

  /** What a person looks at in the run on show: the cursor's step from 0, positions pinned, and how the race is shown. */
  get view() {
    const { step, byClock } = this.timeline;
    return { step, pins: [...this.pins.keys()], byClock, colour: this.colourBy };
  }

  /** Looks at that, as far as the run on show has it. Gives a sentence about what it has not, or "". */
  look({ step, pins = [], byClock = this.timeline.byClock, colour = this.colourBy }) {
    const { n, last } = this.trace;
    this.looking = true;
    this.timeline.setRace(byClock);
    this.colourBy = colour;
    const there = pins.filter((cell) => cell >= 0 && cell < n).slice(0, PIN_COLOURS);
    this.pins = new Map(there.map((cell, colour) => [cell, colour]));
    this.hover = there.at(-1) ?? -1;
    this.#pinned();
    if (step !== undefined) this.timeline.seek(step);
    this.looking = false;
    this.onView();
    const missing = [];
    if (step > last) missing.push(`its step ${step + 1} (this run has ${last + 1})`);
    if (there.length < pins.length) missing.push("some of its pinned positions");
    if (this.colourBy !== colour) missing.push(`its colours by “${colour.slice(0, 20)}”`);
    return missing.length ? `The link speaks of what this run has not: ${missing.join(" and ")}.` : "";
  }

  /** The trace on show has other lanes, or another reference, than before. */
  lanesChanged() {
    const { trace } = this;
    this.tip.hidden = true; // it speaks of a grid that goes
    setText(this.label, [this.caption, describe(trace)].filter(Boolean).join(" "));
    this.sides = trace.lanes.map((lane, i) => new Side(lane, i, this));
    this.grids.dataset.lanes = trace.lanes.length;
    this.grids.replaceChildren(...this.sides.map(({ node }) => node));
    this.sight.watch(this.sides.flatMap(({ box, details }) => [box, details]));
    this.long.load(
      trace.n,
      this.sides.map(({ box }) => box),
    );
    this.colouring.load(trace);
    this.#estimates();
    this.lanes.load(this.sides);
    this.#makeRoom();
    this.gauges.load(trace);
    this.inspector.load(trace);
    this.inspector.drawPins(this.pins);
    this.whatIf?.load(trace);
    this.share.load(trace);
    this.curves.pins = this.pins;
    this.#resize();
    this.curves.load(trace);
    this.analysis.load(trace);
    this.drawRasters();
    this.timeline.drawTicks();
    this.#markChapters();
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
    for (const { raster } of this.sides) raster.moveTo(this.timeline.step);
  }

  /** Epsilon can be moved by hand once all records are there. */
  #estimates() {
    this.epsilon.load(this.trace, (lane) => this.sides.find((side) => side.lane === lane).node);
  }

  /** Everything is shown beside this lane from now on. */
  refer(lane) {
    this.trace.reference = lane;
    this.lanesChanged();
    this.runs.draw();
    this.#announce();
  }

  /** Records were appended to the trace on show. */
  grew() {
    if (!this.narratorRoom.textContent) this.#makeRoom();
    this.timeline.grew();
    this.curves.redraw();
    this.analysis.redraw();
    this.drawRasters();
    this.lessons.grew(this.trace);
  }

  finish() {
    this.trace.live = false;
    this.colouring.load(this.trace);
    this.#estimates();
    this.inspector.drawPins(this.pins);
    this.#makeRoom();
    this.timeline.finish();
    this.curves.redraw();
    this.analysis.redraw();
    this.drawRasters();
    this.#markChapters();
    this.runs.draw();
    this.#announce();
    this.lessons.finished(this.trace);
  }

  say(text, kind = "note") {
    setText(this.status, text);
    this.status.dataset.kind = kind;
  }

  pin(cell) {
    if (this.pins.has(cell)) this.pins.delete(cell);
    else {
      const taken = new Set(this.pins.values());
      const free = Array.from({ length: PIN_COLOURS }, (_, i) => i).find((i) => !taken.has(i));
      if (free === undefined)
        return this.inspector.say(`At most ${PIN_COLOURS} positions can be pinned at once; unpin one first.`);
      this.pins.set(cell, free);
    }
    this.#pinned();
    this.onView();
  }

  #pinned() {
    this.curves.pins = this.pins;
    this.inspector.drawPins(this.pins);
    this.curves.redraw();
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
    this.#draw(this.timeline.step);
  }

  #reveal(trace, label = "") {
    this.show(trace, { label });
    this.root.scrollIntoView({ block: "start" });
    this.onView();
  }

  async #fetchTop(fetchTop, lane, cell, step) {
    const found = await fetchTop(this.trace, lane, cell, step);
    this.whatIf?.offer(
      lane,
      cell,
      step,
      (found ?? []).map(([id, , p]) => [id, p]),
    );
    return found;
  }

  /** A click or Enter pins a cell; of a finger's taps the first one shows it. */
  press(side, cell, touched) {
    const shows = touched && cell !== this.tapped;
    this.hover = this.tapped = cell;
    if (shows) this.redraw();
    else this.pin(cell);
    this.sheet.open(side.place(cell));
  }

  #forget() {
    this.hover = this.tapped = -1;
    this.redraw();
  }

  /** Room for the longest that the narrator will say, as far as it is known: what stands below must not jump. */
  #makeRoom() {
    const { trace } = this;
    setText(this.narratorRoom, trace.lanes.every(({ count: steps }) => steps) ? verdict(trace) : "");
  }

  /** The pointer is on a cell of a side, or on none. */
  point(side, cell, event) {
    this.tip.hidden = cell < 0;
    if (cell < 0) return;
    const other = cell !== this.hover || side !== this.pointed?.side;
    this.pointed = { side, cell };
    this.#writeTip(this.timeline.step);
    const box = this.root.getBoundingClientRect();
    const zoom = zoomOf(this.root);
    const x = Math.min((event.clientX - box.left) / zoom + 14, box.width / zoom - 260);
    this.tip.style.transform = `translate(${x}px, ${(event.clientY - box.top) / zoom + 18}px)`;
    if (!other) return;
    Object.assign(this, { hover: cell, led: null });
    this.whatIf?.turnTo(side.lane);
    this.redraw();
  }

  #writeTip(step) {
    if (this.tip.hidden) return;
    const { side, cell } = this.pointed;
    setText(this.tip, this.inspector.describe(side.lane, cell, step));
  }

  focusCell(side, cell) {
    Object.assign(this, { hover: cell, led: side });
    this.long.reveal(cell, side.grid);
    this.whatIf?.turnTo(side.lane);
    this.redraw();
    this.presenter.reveal(cell);
  }

  /** Speaks the cell that the keys have led to; again where a step makes it another, while its grid has the focus. */
  #speak(step) {
    const { led, hover } = this;
    if (hover < 0 || !led || led.canvas !== document.activeElement) return;
    setText(this.spoken, this.inspector.describe(led.lane, hover, step));
  }

  #theme() {
    this.colours = palette(this.root);
    this.curves.theme(this.colours);
    this.drawRasters();
    this.timeline.drawTicks();
    this.#resize();
  }

  #resize() {
    if (!this.trace) return;
    for (const side of this.sides) side.resize(this.trace.n, this.colours, { whole: this.long.whole });
    this.long.measure();
    this.redraw();
  }

  /** Everything at one step, or while the cursor moves what is in sight. Cheap: a canvas a lane and a few text nodes. */
  #draw(step, moving = false) {
    const { trace } = this;
    if (!trace || !this.sides.length || !this.sides.every(({ grid }) => grid.box)) return;
    const { sight } = this;
    sight.begin(moving);
    const { lane: last } = this.sides.at(-1);
    this.long.follow(step, last.at(trace.reached(last, step))?.unmasked ?? [], this.sides[0].grid);
    this.#drawGrids(
      this.sides.filter(({ box }) => sight.has(box)),
      step,
    );
    for (const side of this.sides) side.draw(trace, step, sight.has(side.details));
    if (sight.has(this.narratorBox)) setText(this.narrator, narrate(trace, step, this.chapters));
    if (sight.has(this.gauges.node)) this.gauges.draw(trace, step);
    this.curves.moveTo(trace.reached(subject(trace), step));
    this.epsilon.moveTo(trace.reached(this.epsilon.lane ?? subject(trace), step));
    this.inspector.draw(this.hover, step, this.pins);
    this.whatIf?.draw(this.hover, step);
    this.#writeTip(step);
    if (!moving) this.#speak(step);
    this.presenter.follow((lane) => trace.reached(lane, step));
    this.root.dataset.step = step;
    this.root.dataset.count = trace.count;
    if (!this.timeline.playing) this.announceLater();
  }

  #drawGrids(sides, step) {
    if (!sides.length) return;
    const { trace } = this;
    const lit = !((this.timeline.playing || this.timeline.follow) && reducedMotion());
    const base = this.sides.find(({ lane }) => lane === trace.reference);
    for (const side of new Set([base, ...sides])) side.label(trace, step);
    for (const side of sides) {
      const t = trace.reached(side.lane, step);
      side.drawGrid(trace, {
        step: t,
        states: this.epsilon.states(side.lane, t),
        values: this.colouring.values(side.lane, t),
        seen: this.long.seen(side.grid),
        top: this.long.windowed ? this.long.top : 0,
        other: side === base ? null : base.labels.tokens,
        fresh: lit,
        hover: this.hover,
        pins: this.pins,
      });
    }
  }

  /** To the step in which the later of the two words at a fork is written; the inspector shows both distributions. */
  toFork(side, step) {
    const { trace } = this;
    const { position } = forkOf(trace, side.lane, step);
    this.hover = position;
    this.timeline.seek(writtenAt(trace, side.lane, position));
    if (isNarrow()) this.sheet.open(side.place(position));
    else this.inspector.node.scrollIntoView({ block: "nearest" });
  }

  /** The screen reader's summary of what the grids show. It waits while a grid has the focus: there the cells speak. */
  #announce() {
    if (!this.trace || (this.grids.contains(document.activeElement) && document.activeElement.matches("canvas")))
      return;
    const { step } = this.timeline;
    setText(this.summary, summary(this.trace, step));
    for (const side of this.sides) side.name(this.trace, step);
  }
}
