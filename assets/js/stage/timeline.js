// The timeline moves the cursor: play, pause, step and scrub. It never talks to a server.

import { h, perFrame, reducedMotion, select, setText, svg } from "../dom.js";
import { page } from "../run/state.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const START_MS = 3_000; // how long the first play rests before the first step
const CATCH_UP = 4; // in a frame the display catches up one part in CATCH_UP of its distance to a run
const WHOLE_RUN_MS = 9_000; // a run at speed 1 takes about this long, at 3 to 30 steps a second

/** Makes an icon from the path of an SVG picture. */
export const icon = (path) => svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: path }));
const ICONS = {
  start: "M6 5h2v14H6zM20 5v14L9 12z",
  back: "M17 5v14L7 12z",
  play: "M7 4v16l13-8z",
  pause: "M6 5h4v14H6zM14 5h4v14h-4z",
  forward: "M7 5v14l10-7z",
  end: "M16 5h2v14h-2zM4 5v14l11-7z",
};

/**
 * The functions that the timeline calls.
 * @typedef {object} Listeners
 * @property {(step: number, scrubbed: boolean) => void} onMove draws a step; scrubbed: the scrubber is being dragged
 * @property {() => void} onSeek a visitor moved the cursor or stopped it
 * @property {() => boolean} onStepPastEnd asks for one more step of a live run; returns false if there cannot be one
 * @property {(event: "pause" | "resume") => void} onLive pauses or resumes the followed run
 * @property {() => void} onRace called when lanes are shown by the clock or step by step
 * @property {() => number} onRest returns the milliseconds for which the display rests at the shown step
 */

/** The timeline of a stage. */
export class Timeline {
  /** @param {Listeners} listeners */
  constructor(listeners) {
    Object.assign(this, listeners, {
      byClock: true,
      step: -1,
      scrubbed: false,
      playing: false,
      follow: true,
      held: false, // whether a visitor has put the cursor there
      stops: [], // steps at which every play stops for a sentence
      restsUntil: null, // the time at which a rest for a sentence ends
      chasing: false, // whether the display is catching up with a run
      trace: null,
    });
    const oninput = () => {
      this.scrubbed = true;
      this.seek(Number(this.scrubber.value));
    };
    const range = { type: "range", min: 0, max: 0, value: 0 };
    this.scrubber = h("input.sl-scrubber", { ...range, "aria-label": "Step", oninput });
    this.marks = h("div.sl-chapters", { "aria-hidden": "true" });
    this.chapters = [];
    this.label = h("span.sl-step-label", "–"); // no output element, which a screen reader would read at every step
    this.whose = h("span.sl-step-whose");
    const speeds = SPEEDS.map((x) => [x, `${x}×`]);
    this.speed = select("select.sl-speed", { "aria-label": "Speed" }, speeds, 1);
    const race = { "aria-label": "Race", onchange: () => this.setRace(this.race.value === "clock") };
    this.race = select("select.sl-speed.sl-race", race, [
      ["clock", "by clock"],
      ["steps", "by step"],
    ]);
    this.liveButton = h("button.sl-live", { hidden: true, onclick: () => this.followLive() }, "Go to live");
    const scrub = h("div.sl-scrub", this.scrubber, this.marks);
    const step = h("div.sl-step-box", this.label, this.whose);
    const parts = [this.#tools(), scrub, this.liveButton, step, this.race, this.speed];
    this.node = h("section.sl-timeline", { "aria-label": "Timeline" }, parts);
    this.show = perFrame(() => this.#show());
    page.follow(["phase"], () => this.#playLabel());
  }

  #tools() {
    const button = (name, label, onclick, keys) => {
      const attributes = { "aria-label": label, title: `${label} (${keys})`, onclick };
      return h(`button.sl-tool.sl-${name}`, attributes, icon(ICONS[name]));
    };
    this.playButton = button("play", "Play", () => this.toggle(), "Space");
    return h(
      "div.sl-tools",
      button("start", "To the start", () => this.seek(0), "Home"),
      button("back", "One step back", () => this.move(-1), "Left"),
      this.playButton,
      button("forward", "One step forward", () => this.move(1), "Right"),
      button("end", "To the end", () => this.seek(Infinity), "End"),
    );
  }

  get step() {
    return page.now.step;
  }
  set step(step) {
    page.set({ step });
  }

  get last() {
    if (!this.trace) return -1;
    return this.live && this.byClock ? this.trace.race.front : this.trace.race.last;
  }
  /** The number of steps of the scrubber. */
  get steps() {
    if (!this.trace) return 0;
    return this.live ? this.trace.steps : this.last + 1;
  }
  get atEnd() {
    return this.step >= this.last;
  }

  /** Loads a trace, and sets the cursor to `step` (default: before the first step). */
  load(trace, { live = false, step = -1 } = {}) {
    this.pause();
    Object.assign(this, { trace, live, follow: live, held: false, step: Math.min(step, trace.race.last) });
    this.#offerRace();
    this.#drawMarks();
    this.show();
  }

  grew() {
    if (this.follow && this.byClock && this.trace.complete) this.#runOut();
    else if (this.follow) this.#chase();
    this.show(); // a lane may have reached the cursor
  }

  /** Called when everything is computed: plays on until the slower lanes end by the clock, too. */
  #runOut() {
    if (this.atEnd) return;
    if (reducedMotion()) this.step = this.last;
    else this.play();
  }

  /** The last step to which the display can follow a run. */
  get #front() {
    return this.live ? this.trace.race.front : this.last;
  }

  /** Follows the run. The display rests for sentences, and catches up afterwards. */
  #chase() {
    if (reducedMotion()) this.step = this.#front;
    if (this.chasing || this.step >= this.#front) return;
    this.chasing = true;
    const tick = (now) => {
      this.chasing = this.follow && !this.playing && (this.#rests(now) || this.step < this.#front);
      if (!this.chasing) return;
      requestAnimationFrame(tick);
      if (this.rests) return;
      this.step = this.#upTo(this.step + Math.ceil((this.#front - this.step) / CATCH_UP));
      this.#show();
      this.#rest(now);
    };
    requestAnimationFrame(tick);
  }

  /** Whether the display still rests. After a rest another sentence about the same step may be shown. */
  #rests(now) {
    if (!this.rests || now < this.restsUntil) return this.rests;
    this.restsUntil = null;
    this.#show();
    this.#rest(now);
    return this.rests;
  }

  #rest(now) {
    const ms = this.onRest();
    if (ms > 0) this.restsUntil = now + ms;
    this.#playLabel();
  }

  /** The step `next`, or the first stop before it. */
  #upTo(next) {
    return this.stops.find((stop) => stop > this.step && stop <= next) ?? next;
  }

  /** Offers the race by the clock if lanes were timed together. */
  #offerRace() {
    const timed = !this.trace || this.trace.race.clocked.length > 0;
    this.race.value = timed && this.byClock ? "clock" : "steps";
    this.race.disabled = !timed;
    this.race.title = timed ? "By the clock or step by step (S)" : "Not timed together, so shown step by step";
  }

  /** Shows the same moment by the clock or step by step. */
  setRace(byClock) {
    const changed = this.byClock !== byClock;
    this.byClock = byClock;
    this.#offerRace();
    if (!changed || !this.trace) return;
    this.trace.race.byClock = byClock;
    this.step = this.follow ? this.trace.race.front : Math.min(this.step, this.last);
    this.onRace();
    this.#drawMarks();
    this.show();
  }

  finish() {
    this.live = false;
    this.#drawMarks();
    this.#labels();
  }

  /** Stops the cursor. Returns a function that lets it go on, null if it was not moving. */
  hold() {
    const { playing } = this;
    const followed = this.live && this.follow;
    if (!playing && !followed) return null;
    this.pause();
    Object.assign(this, { follow: false, held: true });
    this.show();
    return () => {
      if (followed) this.followLive();
      else if (!this.atEnd) this.play();
    };
  }

  followLive() {
    this.pause();
    Object.assign(this, { follow: true, held: false });
    this.grew();
  }

  seek(step, least = 0) {
    this.pause();
    this.step = Math.min(Math.max(least, step), this.last); // -1 before the first step
    this.follow = this.live && this.step === this.trace.race.front; // a lane that does not grow may have more steps
    this.held = !this.follow;
    this.show();
    this.onSeek();
  }

  /** Moves the cursor by one step. A step past the end of a live run asks for a new step. */
  move(by) {
    if (by > 0 && (this.atEnd || this.follow) && this.onStepPastEnd()) {
      this.pause();
      Object.assign(this, { follow: true, held: false });
      return;
    }
    this.seek(this.step + by);
  }

  /** Marks chapters on the scrubber: [{step, name, stop}, ...]. The keys N and P, and clicks, lead to them. */
  mark(chapters) {
    this.chapters = chapters;
    this.stops = chapters.filter(({ stop }) => stop).map(({ step }) => step);
    this.#drawMarks();
  }

  #drawMarks() {
    const whole = Math.max(1, this.steps - 1);
    const mark = ({ step, name }) => {
      const attributes = { title: `${name}: step ${step + 1}${this.#of}`, onclick: () => this.seek(step) };
      return h("span.sl-chapter", { style: `left:calc((100% - 12px) * ${step / whole})`, ...attributes });
    };
    this.marks.replaceChildren(...this.chapters.map(mark));
  }

  /** Moves the cursor to the next chapter (by = 1) or to the previous one (by = -1). */
  chapter(by) {
    const candidates = this.chapters.filter(({ step }) => (step - this.step) * by > 0);
    if (candidates.length) this.seek(candidates.at(by > 0 ? 0 : -1).step);
  }

  /** Whether the picture moves by itself: a replay is playing, or a running run is followed. */
  get moving() {
    return (this.playing && !this.rests) || Boolean(this.live && this.follow && page.now.phase === "running");
  }

  /** Whether the display rests for a sentence. */
  get rests() {
    return this.restsUntil !== null;
  }

  /** Called by the play button. It pauses or resumes the followed run, or else the replay. */
  toggle() {
    if (this.rests && this.playing) this.restsUntil = 0;
    else if (this.playing) {
      this.pause();
      this.held = true;
      this.show();
      this.onSeek();
    } else if (this.moving) this.onLive("pause");
    else if (this.live && page.now.phase === "paused" && (this.atEnd || this.follow)) this.onLive("resume");
    else this.play();
  }

  /** Plays. first: whether the race has not been seen yet; then the display rests before the first step. */
  play({ first = false } = {}) {
    if (!this.trace || this.last < 0) return;
    if (this.atEnd && !this.live) this.step = -1;
    Object.assign(this, { playing: true, follow: false, held: false, restsUntil: null });
    let before = performance.now();
    if (first) this.restsUntil = before + START_MS;
    this.#playLabel();
    this.onPlaying(true);
    let owed = 1; // the first step is shown at once
    const tick = (now) => {
      if (!this.playing) return;
      if (this.#rests(now)) {
        before = now;
        return requestAnimationFrame(tick);
      }
      const interval = Math.max(33, Math.min(330, WHOLE_RUN_MS / Math.max(1, this.trace.race.last + 1)));
      owed += ((now - before) * Number(this.speed.value)) / interval;
      before = now;
      const steps = Math.min(Math.floor(owed), 8);
      if (steps >= 1) {
        owed -= Math.floor(owed);
        this.step = this.#upTo(Math.min(this.step + steps, this.last));
        this.#show();
        this.#rest(now);
      }
      if (!this.atEnd || this.live) requestAnimationFrame(tick);
      else this.pause();
    };
    requestAnimationFrame(tick);
  }

  pause() {
    if (!this.playing) return;
    Object.assign(this, { playing: false, restsUntil: null });
    this.#playLabel();
    this.onPlaying(false);
  }

  #playLabel() {
    const { moving } = this;
    if (this.shownMoving === moving) return;
    this.shownMoving = moving;
    this.playButton.replaceChildren(icon(moving ? ICONS.pause : ICONS.play));
    this.playButton.setAttribute("aria-label", moving ? "Pause" : "Play");
    this.playButton.title = `${moving ? "Pause" : "Play"} (Space)`;
  }

  #show() {
    // Before the labels change: it may scroll, which would then compute the layout.
    this.onMove(this.step, this.scrubbed);
    this.scrubbed = false;
    this.#labels();
  }

  #labels() {
    this.#playLabel();
    this.scrubber.max = Math.max(0, this.steps - 1);
    this.scrubber.value = Math.max(0, this.step);
    this.liveButton.hidden = !this.live || this.follow || this.trace.complete;
    const text = this.last < 0 ? "no step yet" : `step ${this.step + 1} / ${this.steps}`;
    setText(this.label, text);
    setText(this.whose, this.#behind || this.#of.trim());
    this.scrubber.setAttribute("aria-valuetext", text + this.#of);
  }

  /** The progress of the run if the display is behind it, else "". */
  get #behind() {
    const behind = this.trace && this.follow && this.live && this.step < this.#front;
    return behind ? `${this.#front + 1} computed` : "";
  }

  /** The lane whose steps the cursor counts, in words; "" if the cursor counts those of all lanes. */
  get #of() {
    return this.trace?.race.whose ? ` of ${this.trace.race.whose}` : "";
  }
}
