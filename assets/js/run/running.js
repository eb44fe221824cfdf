// Controls the current run: it is requested, waits, opens, sends its steps and ends. Pause, Step and Stop act on it.

import { closeSidebarIfNarrow, pressRun } from "../form/controls.js";
import { fieldOf } from "../form/refusal.js";
import { withBlanks } from "../trace/blanks.js";
import { digitsOfTokens, touchedName } from "../trace/touches.js";
import { Trace } from "../trace/trace.js";
import { cursorBefore, partedAt } from "./branching.js";
import { LiveRun } from "./live_run.js";
import { page, say } from "./state.js";
import { keepRun } from "./visit.js";
import { FILLING, fetching, foreignText, lookedFor, ONE_WAITS, waitingText } from "./wording.js";

/**
 * Sets what is waiting: "run" (a run of the form), "branch" (a touch, another ε or a lesson's run), "more" (steps of a
 * paused run), or null.
 */
const waitFor = (what) => page.set({ waits: what, place: 0, waiting: "" });

const WITHOUT = "This link’s touches are not possible here, so it plays without them.";
const OTHER_WEIGHTS = "The sender’s page had other weights of this model: its text may be another.";
const OTHER_TOKENS = "The sender’s run ended with other words: rounding, or another version, decided otherwise.";

/** A sentence if the run of a link has other tokens than the sender's run, else "". */
const otherTokens = (linked, trace) => (linked?.tokens && linked.tokens !== digitsOfTokens(trace) ? OTHER_TOKENS : "");

/** [original, touched]: the lane of a link that was touched, and the same lane with the touches. */
function touchedLanes(lanes, { lane, events }) {
  const original = lanes[Math.min(lane, lanes.length - 1)];
  return [original, { ...original, id: "touched", name: touchedName(original, events), events, parent: original.id }];
}

const BRANCH = "A branch:"; // the label of a trace with a branch

/** Requests, follows and ends runs. */
export class Running {
  run = null;
  branching = null; // the waiting branch, see branchOf
  aside = null; // the race that was paused for a touch
  #queued = null; // the waiting run of the source, which has not opened
  #early = false; // whether Run was pressed before the form had its settings

  /** source: a source of runs, see server_source.js. */
  constructor({ stage, source }) {
    Object.assign(this, { stage, source });
    page.follow(["waiting"], ({ waiting }) => waiting && say(waiting));
    page.follow(["arrived"], ({ arrived }) => arrived && this.#early && this.pressForm());
  }

  /** Presses the form's button Run, now or when the form has its settings. */
  pressForm() {
    this.#early = !page.now.arrived;
    if (this.#early) say(FILLING);
    else pressRun();
  }

  /** Starts a run of the form. It replaces the visitor's older run at once, whatever its state. */
  press({ lanes, ...values }) {
    if (!page.now.arrived) return this.pressForm();
    const { linked } = page.now;
    page.set({ linked: null });
    const lost = linked?.model && linked.model !== values.model;
    if (lost)
      return this.stage.instead(`The model “${linked.model}” is not here, so this link’s run cannot be computed.`);
    closeSidebarIfNarrow();
    if (["run", "branch"].includes(page.now.waits)) this.#leaveQueue();
    this.leave(null);
    this.#leaveAside();
    const request = { ...withBlanks(values), lanes: JSON.parse(lanes).lanes };
    const touched = linked?.touches && touchedLanes(request.lanes, linked.touches);
    const link = linked && { link: true };
    this.#begin("run", { ...request, ...link, ...(touched && { lanes: touched }) }, linked && { ...linked, request });
  }

  /** The reason why no other run can be requested, a sentence, or "". */
  get refuses() {
    return page.now.waits ? ONE_WAITS : "";
  }

  /**
   * Requests a branch (see branchOf), and shows it while it waits. lanes: the lanes that are computed.
   * The branch begins at a snapshot of the lane `origin` if the run of that lane is still kept.
   */
  askFor(branching, lanes) {
    const { trace, origin } = branching;
    this.stage.show(trace, { label: BRANCH, step: cursorBefore(branching), keep: true });
    const decoders = lanes.map(({ decoder }) => decoder);
    const steps = lanes.map(({ count }) => count);
    const from = origin?.run && { run: origin.run, lane: origin.id, steps };
    this.ask(trace, decoders, branching, from);
  }

  /**
   * Makes room for a touch of a race: gives up a waiting touch, ends a touch that is being computed, and pauses the
   * race until the visitor goes back to it. Returns the reason why a touch is impossible, a sentence, or "".
   */
  giveWay(race, shown) {
    const { waits } = page.now;
    if (waits === "run" || (waits === "branch" && !this.branching?.origin)) return ONE_WAITS;
    if (waits === "branch") this.#leaveQueue();
    const { run } = this;
    if (page.now.phase === "idle") return "";
    if (run.trace !== race || !run.pausable) this.leave(run.trace === shown && shown !== race ? shown : null);
    else this.#setAside();
    return "";
  }

  #setAside() {
    const { run } = this;
    const rested = page.now.phase === "paused"; // paused by the visitor
    this.#leaveAside();
    Object.assign(run, { state: "aside", rested });
    run.handle.pause();
    run.trace.race.live = false;
    this.aside = run;
    this.run = null;
    if (page.now.waits === "more") waitFor(null);
    page.set({ phase: "idle", pending: null });
  }

  /** Shows a race again after touches. If the race was paused for them, it goes on. */
  backTo(race) {
    if (page.now.waits === "branch") {
      this.#leaveQueue(); // this may show the race already
      if (page.now.trace === race) return;
    }
    this.leave(null);
    const { aside } = this;
    if (aside?.trace !== race) return this.stage.show(race, { keep: true, step: race.race.last });
    this.aside = null;
    this.run = Object.assign(aside, { state: "running" });
    this.stage.show(race, { live: true, label: "Your run:", step: race.race.front, keep: true });
    page.set({ phase: "paused" });
    if (!aside.rested) this.resume();
  }

  /** Gives up the race that was paused for a touch. Its steps so far stay in the table of runs. */
  #leaveAside() {
    const { aside } = this;
    if (!aside) return;
    this.aside = null;
    aside.handle.stop();
    if (aside.trace.count) keepRun(aside.trace, "stopped");
  }

  /** Takes a message of the paused race: a step that was being computed, or its end. */
  #asideHears(message) {
    const { aside } = this;
    if (message.records) aside.take(message);
    if (message.errors) aside.score(message.errors);
    if (!message.end && !message.lost) return;
    this.aside = null;
    const how = message.end === "finished" ? "live" : (message.end ?? "interrupted");
    if (aside.trace.count) keepRun(aside.trace, how);
  }

  /** Requests a run of lanes with a trace's prompt. The current run ends, unless the new run is a branch. */
  ask({ header: { model, prompt, chat, prompt_tokens, lists } }, lanes, branching = null, from = undefined) {
    if (!branching) this.#stopRun();
    if (!branching?.origin) this.#leaveAside();
    this.branching = branching;
    this.#begin("branch", { model: model.name, prompt, chat, prompt_tokens, lists, lanes, ...(from && { from }) });
  }

  #begin(what, request, linked = null) {
    page.set({ refused: null });
    this.linked = linked;
    this.submitted = what === "run" ? page.now.edited : undefined;
    waitFor(what);
    say("Starting …");
    const handle = this.source.start(request, (messages) => this.#hear(handle, messages));
    this.#queued = handle;
  }

  #hear(handle, messages) {
    for (const message of messages) this.#message(handle, message);
    this.#showNew();
  }

  /** Shows a sentence about the current run, now and again at its end. */
  #note(text) {
    this.run.note = text;
    say(text);
  }

  #showNew() {
    const { run } = this;
    if (run?.readNews() && page.now.trace === run.trace) page.set({ records: page.now.records + 1 });
  }

  #message(handle, message) {
    if (this.aside?.handle === handle) return this.#asideHears(message);
    const goesOn = this.run?.handle === handle && !this.run.over;
    if (!goesOn && handle !== this.#queued) return;
    const { place, loading, status, note, refused, lost } = message;
    if (place !== undefined) return this.#placed(message);
    if (loading) return say(fetching(loading));
    if (status !== undefined) return say(status || page.now.waiting || this.run?.note || "");
    if (note) return this.#note(note);
    if (message.open) return this.#open(handle, message);
    if (!goesOn) return this.#refused(refused ?? lost);
    if (lost) return this.#end({ end: "interrupted", problem: `${lost} What was computed is kept.` });
    if (refused) return this.#rest(refused, "error");
    if (page.now.waits === "more") {
      waitFor(null);
      say("");
    }
    if (message.end) return this.#end(message);
    if (message.errors) return this.run.score(message.errors);
    this.#records(message);
  }

  /** Takes the place of a run in the queue. A run whose stream was cut waits again. */
  #placed(message) {
    const waits = page.now.waits ?? (message.place ? "more" : null);
    page.set({ waits, place: message.place, waiting: waits ? waitingText(message) : "" });
  }

  #records(message) {
    const { run } = this;
    const before = run.behind;
    const { other, again } = run.take(message);
    if (other) return this.#part(other);
    run.behind = again > 0;
    if (again) say(`Computing again up to the step in question: step ${again} …`);
    else if (before) say(run.branching?.parted ?? "");
  }

  /**
   * Called when a step on show was computed again with another result: the growing lanes and the parent are cut
   * there.
   */
  #part(record) {
    const { trace, branching, engine } = this.run;
    const parted = partedAt(branching, record, engine);
    const kept = trace.lanes.filter((lane) => !parted.trace.lanes.includes(lane) || trace.race.growing.includes(lane));
    this.leave(trace);
    const lanes = kept.map(({ id }) => parted.trace.lane(id));
    this.askFor(parted, lanes);
  }

  #refused(why) {
    const { linked } = this;
    this.#forgetQueued();
    if (linked?.touches) return this.#without(linked, why);
    if (page.now.trace?.provisional) return this.stage.instead(why);
    page.set({ refused: { text: why, field: fieldOf(why) } });
    say(why, "error");
  }

  /** Starts the run of a link without its touches, which its settings do not allow. */
  #without({ request, ...linked }, why) {
    this.#begin("run", { ...request, link: true }, { ...linked, touches: null, said: `${WITHOUT} ${why}` });
  }

  #forgetQueued() {
    this.#queued = null;
    waitFor(null);
    this.#undo(this.branching);
    page.set({ forgotten: page.now.forgotten + 1 });
  }

  #open(handle, { run: id, open, pausable }) {
    const { branching } = this;
    this.#queued = this.branching = null;
    waitFor(null);
    if (this.run && !this.run.over) this.#end({ end: "stopped" }); // its last message did not arrive
    const trace = branching?.trace ?? new Trace(open);
    if (!branching?.origin) branching?.trace.timed(open.header); // an original lane keeps the times of its race
    const lanes = open.header.lanes.map((lane) => trace.lane(lane.id));
    for (const lane of lanes) lane.run = id; // the run that has the snapshots of the lane
    // Other lanes are computed again only for the comparison.
    trace.race.growing = lanes.filter((lane) => !lane.endsAt(lane.count - 1));
    const { engine } = open.header;
    for (const lane of trace.race.growing) {
      lane.source = { run: id };
      if (branching) trace.computed(lane, engine);
    }
    this.run = new LiveRun({ id, handle, trace, pausable, engine, branching, linked: this.linked });
    this.#show(trace, branching);
    const foreign = trace.pieces.isForeign(trace.header.prompt_tokens);
    const { linked } = this;
    if (linked) Object.assign(trace, { settings: linked.settings, touchedLane: linked.touches?.lane });
    if (linked?.touches) for (const lane of trace.lanes) lane.timing = null; // so that they are compared step by step
    const { weights } = trace.header.model;
    const other = linked?.weights && weights && linked.weights !== weights ? OTHER_WEIGHTS : "";
    const unknown = foreign ? foreignText(page.now.knows) : "";
    const sentences = [linked?.said, other, unknown].filter(Boolean);
    this.#note(branching?.parted ?? sentences.join(" "));
    const { edited, wanted } = page.now;
    if (wanted) this.run.lacks = this.stage.look({ ...wanted, step: undefined });
    // Else the form was changed since.
    page.set({ edited: edited === this.submitted ? null : edited, phase: "running" });
  }

  #show(trace, branching) {
    const step = branching ? cursorBefore(branching) : -1;
    if (page.now.trace !== trace)
      return this.stage.show(trace, { live: true, label: branching ? BRANCH : "Your run:", step });
    this.stage.growOn(trace, step);
  }

  #end({ end, problem }) {
    this.#showNew();
    const { trace, branching, lacks } = this.run;
    let { note } = this.run;
    const { wanted, waits } = page.now;
    this.run.state = "over";
    page.set({ pending: null, phase: "idle", wanted: null });
    if (waits === "more") waitFor(null);
    trace.race.live = false;
    const { linked } = this.run;
    if (end === "failed" && linked?.touches) return this.#without(linked, problem);
    if (end === "finished" && !problem) {
      note = [linked?.problem, note || otherTokens(linked, trace)].filter(Boolean).join(" ");
      this.run.note = note;
    }
    const inVain = Boolean(branching) && branching.child.count === branching.from; // no new step came
    let sentence =
      problem ?? (end === "stopped" ? `Stopped after ${trace.race.done}.` : (branching?.parted ?? note ?? ""));
    const shown = page.now.trace === trace;
    if (inVain) this.#undo(branching);
    if (!inVain || !shown) page.set({ ended: trace });
    if (shown && !inVain) {
      if (wanted) sentence ||= [lookedFor(wanted, trace), lacks].filter(Boolean).join(" ");
    }
    // Else the page shows sentences about the next run.
    if (!page.now.waits) say(sentence, problem ? "error" : "note");
    const finished = branching ? "branch" : "live";
    if (trace.count && !inVain) keepRun(trace, end === "finished" ? finished : end);
  }

  /**
   * Leaves the current run, if there is one. Returns whether it is the run of `trace`: the next run then continues
   * it.
   */
  leave(trace) {
    const { run } = this;
    const going = page.now.phase !== "idle";
    const cut = going && run.trace === trace;
    if (going) run.handle.stop();
    if (going && !cut) this.#end({ end: "stopped" }); // its last message is not taken any more
    page.set({ pending: null, phase: "idle" });
    this.run = null;
    return cut;
  }

  /** Removes a branch without new steps, if there is one. The run that it interrupted stays in the table. */
  #undo(branching) {
    if (!branching) return;
    const { trace, before, cut } = branching;
    this.branching = null;
    if (this.aside?.trace === before) return this.backTo(before);
    if (page.now.trace === trace) this.stage.show(before, { keep: true });
    if (!cut) return;
    before.race.live = false;
    if (before.count) keepRun(before, "stopped");
  }

  async pause() {
    if (page.now.phase !== "running") return;
    if (this.run.pausable) return this.#pause();
    page.now.player.seek(page.now.step - 1);
    say("Only the display is paused: this server’s device cannot hold a run.");
  }

  async #pause() {
    const { run } = this;
    this.#rest("Pausing after this step …");
    page.set({ pending: "pause" });
    await run.handle.pause();
    if (this.run !== run || page.now.pending !== "pause") return;
    page.set({ pending: null });
    say(`Paused after ${run.trace.race.done}.`);
  }

  /** Called when nothing of the run is computed or waits: the run is paused. */
  #rest(sentence, kind) {
    if (!this.run.over) this.run.state = "running";
    if (page.now.waits === "more") waitFor(null);
    page.set({ phase: "paused" });
    say(sentence, kind);
  }

  resume() {
    if (page.now.phase !== "paused" || page.now.pending === "stop") return;
    this.run.state = "running";
    say("");
    page.set({ phase: "running", pending: null });
    page.now.player.followLive();
    waitFor("more");
    this.run.handle.resume();
  }

  /** Requests one more step if the run on show is paused. Returns whether a step is requested. */
  step() {
    const { run } = this;
    if (!run || page.now.trace !== run.trace || page.now.phase !== "paused") return false;
    if (run.state !== "stepping" && !page.now.pending) {
      run.state = "stepping";
      waitFor("more");
      run.handle.step();
    }
    return true;
  }

  /** Ends the run after its present step. A run that waits for the device leaves the queue. */
  stop() {
    const { waits, place } = page.now;
    if (waits === "more" && place) return this.#pause();
    if (!waits || waits === "more") return this.#stopRun();
    this.#leaveQueue();
    say("Cancelled: nothing waits for the device any more.");
  }

  #leaveQueue() {
    this.#queued.leave();
    this.#forgetQueued();
  }

  async #stopRun() {
    const { run } = this;
    if (page.now.phase === "idle") return;
    page.set({ pending: "stop" });
    say("Stopping after this step …");
    await run.handle.stop();
    if (this.run === run && !run.over) this.#end({ end: "stopped" });
  }
}
