// The stage inside the Gradio page: the stream of a run comes in as the component's value, the buttons' wishes go out.

import { readAddress, sameSettings, settingsOf, settingsOfForm, writeAddress } from "./address.js";
import { branchOf, cursorBefore, withEvent } from "./branching.js";
import { listen, tell } from "./bus.js";
import { closeSidebarIfNarrow, openSidebar, pressRun } from "./controls.js";
import { number } from "./described.js";
import { reducedMotion, throttle } from "./dom.js";
import { embed, embeddedLanes } from "./embed.js";
import { phoneActions } from "./phone.js";
import "./ready.js";
import { readRun, recorded } from "./recorded.js";
import { addSkipLink } from "./skip.js";
import { Stage } from "./stage.js";
import { Store } from "./store.js";
import { Trace, TraceError } from "./trace.js";
import { Waiting } from "./waiting.js";

const LOOP_PAUSE_MS = 5000;
const ASK_MS = 120;
const GRACE_MS = 1000;
const ONE_WAITS = "A run of yours waits for the device already: cancel it first.";
const makeName = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("");
const later = (ms) => new Promise((then) => setTimeout(then, ms));

/** A link that reopens the page with what is looked at in this run. */
const linkTo = (trace, view) =>
  `${location.origin}${location.pathname}?${writeAddress(settingsOf(trace), view, location.search)}`;

function replaceQuery(query) {
  if (query !== location.search.slice(1))
    history.replaceState(history.state, "", `${location.pathname}${query && `?${query}`}`);
}

class Live {
  constructor({ root, server, trigger, base }) {
    Object.assign(this, { server, trigger, base, run: null, branching: null, presets: [] });
    listen("presets", (presets) => {
      this.presets = presets;
    });
    this.stage = new Stage(root, {
      plotly: new URL("plotly.min.js", base).href,
      source: { document: (run) => server.export(run), shell: () => server.shell(), link: linkTo },
      fetchTop: async (_, { source }, cell, step) => {
        if (!source?.run || step < 0) return null;
        return (await server.top(source.run, cell, step))?.[source.id] ?? null;
      },
      fetchAttended: (trace, lane, cell, t) => server.attended(trace.header.model.name, [...lane.tokens(t - 1)], cell),
      stepLive: () => this.step(),
      onLive: (wish) => this[wish](),
      onView: throttle(() => this.#writeAddress(), 300),
      onRun: (trace, source) => {
        this.#keep(trace, source);
        this.#writeAddress();
      },
      onUse: (trace) => this.#use(trace),
      lessons: {
        recorded: readRun,
        race: (trace, contestants) => this.raceLike(trace, contestants),
        onPlace: (name, page) => this.#place(name, page),
      },
      whatIf: {
        branch: (lane, event, name) => this.branch(lane, event, name),
        token: (text) => server.token(this.stage.trace.header.model.name, text),
        presets: () => this.presets,
        race: (lane, epsilon) => this.race(lane, epsilon),
      },
    });
    this.store = new Store({ onProblem: (text) => this.stage.say(text) });
    addEventListener("pagehide", () => this.#leave());
    this.waiting = new Waiting({
      say: (text, kind) => this.stage.say(text, kind),
      refused: (why) => (this.waiting.what === "more" ? this.#held(why, "error") : this.#refused(why)),
      seconds: (place) => server.wait(place, this.waiting.for("more") ? this.run.id : null),
    });
    embed(root);
    for (const wish of ["pause", "resume", "stop"]) listen(wish, () => this[wish]());
    listen("step", () => this.stage.timeline.move(1));
    listen("run", (press) => {
      if (!this.waiting.for("run")) return this.#started();
      press.refused = true;
      this.stage.say(ONE_WAITS);
    });
    listen("controls", () => this.#state(this.run?.state ?? "idle"));
    this.#state("idle");
  }

  /** Something is there before anyone presses anything: after a reload what was on show, else the recorded run. */
  async arrive() {
    const { settings, view, problem } = readAddress(location.search);
    const { run, query } = this.store.shown;
    if (view.byClock !== undefined) this.stage.timeline.setRace(view.byClock);
    this.recorded = await recorded;
    if (this.recorded) this.stage.runs.add(this.recorded, "recorded");
    const kept = this.#kept();
    if (this.run || this.stage.trace) return;
    const back = query === location.search.slice(1); // a reload, or the way back: not somebody's link
    const again = back && kept.get(run);
    if (again)
      this.stage.show(again, {
        label: again.interrupted ? "Interrupted by leaving the page or losing the connection:" : "As you left it:",
      });
    else if (this.recorded) this.#showRecorded(settings, view);
    else return this.stage.say("The recorded run could not be read; press Run to make one.");
    const own = again || this.#asksForRecorded(settings);
    const missing = own && Object.keys(view).length ? this.stage.look(view) : "";
    this.wanted = own ? null : view; // for the run that the link asks for
    const asks =
      own || back ? "" : "The link asks for a run of its own: press Run to make it. Until then a recorded one plays.";
    this.#tell(problem, missing, asks);
    this.stage.lessons.arrive(location.search);
  }

  /** Sentences about the link come from here and from the server, in any order. */
  #tell(...sentences) {
    this.told = [...new Set([...(this.told ?? []), ...sentences])].filter(Boolean); // a message may come twice at first
    if (!this.run) this.stage.say(this.told.join(" "));
  }

  #showRecorded(settings, { step }) {
    const still = step !== undefined && this.#asksForRecorded(settings);
    const play = !still && !reducedMotion(); // where motion is not wanted, it stands at its end
    const trace = embeddedLanes(this.recorded);
    this.stage.show(trace, { play, label: "A recorded run; press Run to make your own:" });
    if (play) this.#loop(trace);
  }

  #asksForRecorded(settings) {
    return !settings || (this.recorded !== null && sameSettings(settings, settingsOf(this.recorded)));
  }

  /** The runs of this tab from before a reload, by their keys. */
  #kept() {
    const found = new Map();
    for (const { id, source, document } of this.store.runs())
      try {
        const trace = Object.assign(Trace.parse(document), { key: id, interrupted: source === "interrupted" });
        this.stage.runs.add(trace, source);
        found.set(id, trace);
      } catch (error) {
        if (!(error instanceof TraceError)) throw error; // kept by a former version of the page
      }
    return found;
  }

  #keep(trace, source) {
    trace.key ??= `${Date.now()}-${Math.random().toString(36).slice(2, 8)}`;
    this.store.keep(trace.key, source, trace.toDocument());
  }

  /** The page is left, perhaps in the middle of a run: its address cannot change any more. */
  #leave() {
    const going = this.run && this.run.state !== "idle";
    const trace = going ? this.run.trace : this.branching?.cut && this.branching.before;
    if (!trace?.count) return;
    this.#keep(trace, "interrupted");
    this.store.shown = { run: trace.key, query: location.search.slice(1) };
  }

  /** The address says what is on show; while the form asks for something else, that. */
  #writeAddress() {
    const { trace, view } = this.stage;
    if (!trace) return;
    const settings = this.#isRecorded(trace) ? "" : settingsOf(trace);
    const query = writeAddress(this.edited ?? settings, this.edited ? {} : view, location.search);
    replaceQuery(query);
    this.store.shown = { run: trace.key ?? null, query };
  }

  /** Whether a run shows nothing but the recorded one's contestants, and what was tried by hand on them. */
  #isRecorded({ lanes }) {
    return lanes.every((lane) => lane.contestant.events?.length || this.recorded?.lanes.includes(lane));
  }

  /** The address says which page of which lesson is open. */
  #place(name, page) {
    const query = new URLSearchParams(location.search);
    for (const part of ["lesson", "page"]) query.delete(part);
    if (name) for (const [part, value] of Object.entries({ lesson: name, page: page + 1 })) query.set(part, value);
    replaceQuery(query.toString());
    this.#writeAddress();
  }

  /** The form's values after a visitor changed one of them. */
  edit(values) {
    if (!this.touched) return; // the page's own settling
    this.edited = settingsOfForm(values);
    this.wanted = null;
    this.#writeAddress();
  }

  /** The recorded run starts over after a while, until somebody touches the page. */
  #loop(trace) {
    let touched = false;
    for (const type of ["pointerdown", "keydown"])
      addEventListener(
        type,
        () => {
          touched = true;
        },
        { once: true, capture: true },
      );
    const again = () => {
      if (touched || this.stage.trace !== trace || this.stage.lessons.open) return;
      const { timeline } = this.stage;
      if (!timeline.playing && timeline.atEnd) timeline.play();
      setTimeout(again, LOOP_PAUSE_MS);
    };
    setTimeout(again, LOOP_PAUSE_MS);
  }

  receive(text) {
    let batch;
    try {
      batch = JSON.parse(text);
    } catch {
      return;
    }
    for (const message of batch) this.#message(message);
    this.#showNew();
  }

  /** The records of a batch are shown together. */
  #showNew() {
    const { run } = this;
    if (!run?.grown) return;
    run.grown = false;
    if (this.stage.trace === run.trace) this.stage.grew();
  }

  #message(message) {
    if (message.notice) return this.#tell(message.notice);
    if (message.open && this.cancelled) return this.server.stop(message.run); // its turn came all the same
    const waited = this.waiting.on && this.waiting.what !== "more";
    if (message.refused || message.open) this.waiting.end();
    if (message.refused) return this.#refused(message.refused, waited);
    if (message.open) return this.#open(message);
    const { run } = this;
    if (!run || run.over || message.run !== run.id || message.seq <= run.seq) return;
    if (message.seq !== run.seq + 1) {
      this.lost = (this.lost ?? 0) + 1;
      return this.trigger("play", { run: run.id, after: run.seq });
    }
    run.seq = message.seq;
    if (this.waiting.for("more")) this.#goesOn();
    if (message.end) return this.#end(message);
    if (message.errors) return this.#errors(message.errors);
    if (message.scores) return run.trace.judge(message.scores);
    run.trace.addPieces(message.pieces);
    for (const record of message.records) run.trace.append(record);
    run.grown = message.records.length > 0 || run.grown;
    if (!message.records.length) this.stage.say(`Computing again up to the step in question: step ${run.behind++} …`);
    else if (run.behind > 1) {
      run.behind = 1;
      this.stage.say("");
    }
    if (run.steps !== undefined && --run.steps <= 0) {
      run.steps = undefined;
      this.#state("paused");
    }
  }

  /** The steps are over; what skipping changed is told lane by lane. */
  #errors(lanes) {
    const { run } = this;
    for (const { contestant, commit_error: errors, changed } of lanes)
      run.trace.lane(contestant)?.score(errors, changed);
    run.grown = true;
  }

  /** What was asked for will not come; where nothing waited, it was how the run on its way goes on. */
  #refused(why, waited = true) {
    if (!waited && this.run && this.run.state !== "idle") return this.#end({ end: "stopped", problem: why });
    this.#undo(this.branching);
    this.stage.lessons.gone();
    this.#state("idle");
    this.stage.say(why, "error");
  }

  #open({ run: id, seq, open, pausable }) {
    const { branching } = this;
    if (this.run && !this.run.over) this.#end({ end: "stopped" }); // its last message was not sent
    const trace = branching?.trace ?? new Trace(open);
    trace.growing = open.header.contestants.map(({ id: own }) => trace.lane(own));
    for (const lane of trace.growing) lane.source = { run: id, id: lane.id };
    this.run = { id, seq, trace, pausable, state: "running", behind: 1, branching };
    const step = branching ? cursorBefore(branching) : -1;
    if (this.stage.trace === trace) {
      trace.live = true;
      this.stage.timeline.load(trace, { live: true, step });
    } else this.stage.show(trace, { live: true, label: branching ? "What if:" : "Your run:", step });
    this.branching = null;
    this.edited = null;
    this.stage.say("");
    if (this.wanted) this.stage.look({ ...this.wanted, step: undefined });
    this.#writeAddress();
    this.#state("running");
  }

  #end({ end, problem }) {
    this.#showNew();
    const { trace, branching } = this.run;
    this.run.over = true;
    this.#wish(null);
    this.#state("idle");
    trace.live = false;
    const inVain = Boolean(branching) && branching.child.count === branching.from; // no step of its own came
    const finished = branching ? "what if" : "live";
    let told = problem ?? (end === "stopped" ? `Stopped after step ${trace.count}.` : "");
    if (inVain) this.#undo(branching);
    else if (this.stage.trace === trace) {
      this.stage.finish();
      if (this.wanted?.step !== undefined) told ||= this.stage.look(this.wanted);
    }
    this.wanted = null;
    if (!this.waiting.on) this.stage.say(told, problem ? "error" : "note"); // else it is the next one's
    if (trace.count && !inVain) this.stage.add(trace, end === "finished" ? finished : end);
  }

  #started() {
    if (this.waiting.on) this.#leaveQueue();
    this.#stopRun();
    this.#wait("run");
  }

  #wait(what) {
    this.cancelled = false;
    this.waiting.begin(what);
    this.stage.say("Starting …");
  }

  /** Starts a contestant that is a lane with another epsilon. Gives a sentence where it cannot. */
  race(lane, epsilon) {
    const { compute } = lane.contestant;
    const rule = { ...(compute.lock ?? compute), epsilon };
    const changed = { compute: compute.lock ? { ...compute, lock: rule } : rule, parent: null }; // it shares no step
    const name = lane.name.replace(/, ε [^,]+/, "");
    return this.branchOff(lane, changed, 0, `${name.slice(0, 68)}, ε ${number(epsilon)}`);
  }

  /** Starts a run of its own with the prompt of another one. Gives a sentence where it cannot. */
  raceLike(trace, contestants) {
    if (this.waiting.on) return ONE_WAITS;
    this.#stopRun();
    this.#wait("apply");
    this.#apply(
      trace,
      contestants.map((contestant) => ({ ...contestant, skip: 0 })),
    );
    return "";
  }

  /** Asks for a run of these contestants with a trace's prompt; `skip`: so many steps of one are known already. */
  #apply({ header: { model, prompt, chat, prompt_tokens } }, lanes) {
    this.#ask("apply", { model: model.name, prompt, chat, prompt_tokens, lanes });
  }

  /** Puts a run's model, prompt, settings and contestants into the form, as opening its link does. */
  async #use(trace) {
    const state = await this.server.model_state(trace.header.model.name);
    if (state !== "ready" && state !== "loading") return this.stage.say(state, "error");
    this.trigger("select", Object.fromEntries(new URLSearchParams(settingsOf(trace))));
    this.stage.say("The form holds the settings of this run; press Run to race them.");
  }

  /** Starts a contestant that is `parent` with one event more, beside it from that event's step on. Gives a sentence where it cannot. */
  branch(parent, event, name) {
    const events = withEvent(parent.contestant.events ?? [], event);
    return this.branchOff(parent, { events }, event.step, name);
  }

  /** Starts a contestant that is `parent` with something changed from a step on. Gives a sentence where it cannot. */
  branchOff(parent, changed, from, name) {
    if (this.waiting.on) return ONE_WAITS;
    const { trace: before } = this.stage;
    const cut = this.#leaveRun(before);
    const { trace, child } = branchOf(before, parent, changed, from, name);
    this.branching = { trace, child, from, before, cut };
    const unfinished = cut ? trace.lanes.filter((lane) => lane !== child && !lane.endsAt(lane.count - 1)) : [];
    const lanes = [...unfinished, child].map((lane) => ({ ...lane.contestant, skip: lane.count }));
    this.stage.show(trace, { label: "What if:", step: cursorBefore(this.branching) });
    this.#wait("apply");
    this.#apply(trace, lanes);
    return "";
  }

  /** Leaves the run on its way, if there is one. Says whether it is that trace's: what it has not finished goes on in the next one. */
  #leaveRun(trace) {
    const { run } = this;
    const going = Boolean(run) && run.state !== "idle";
    const cut = going && run.trace === trace;
    if (going) this.server.stop(run.id);
    if (going && !cut) this.#end({ end: "stopped" }); // its last message will find it gone
    this.#wish(null);
    this.#state("idle");
    this.run = null;
    return cut;
  }

  /** Takes back a branch that nothing came of, if there is one; the run that it cut short stays in the table. */
  #undo(branching) {
    if (!branching) return;
    const { trace, before, cut } = branching;
    this.branching = null;
    if (this.stage.trace === trace) this.stage.show(before);
    if (!cut) return;
    before.live = false;
    if (before.count) this.stage.add(before, "stopped");
  }

  async pause() {
    if (this.run?.state !== "running") return;
    if (this.waiting.for("more")) return this.#takeBack();
    if (!this.run.pausable) {
      this.stage.timeline.seek(this.stage.timeline.step - 1);
      return this.stage.say("Only the display is paused: this server’s device cannot hold a run.");
    }
    const { run } = this;
    this.#state("paused");
    this.#wish("pause");
    this.stage.say("Pausing after this step …");
    await this.server.pause(run.id);
    while (run.wish === "pause" && (await this.server.state(run.id)) === "running") await later(ASK_MS);
    if (run.wish !== "pause") return;
    this.#wish(null);
    if (run.again) {
      run.again = false;
      return this.resume();
    }
    this.stage.say(`Paused after step ${run.trace.count}.`);
  }

  resume() {
    const { run } = this;
    if (run?.state !== "paused") return;
    if (run.wish) {
      run.again = !run.again; // once it has paused
      return;
    }
    if (run.steps !== undefined) return this.stage.say("A step is on its way: let it come first.");
    this.stage.say("");
    this.#state("running");
    this.stage.timeline.followLive();
    this.#goOn("play");
  }

  /** Asks the server for more of a paused run: its turn comes when the device is free. */
  #goOn(how) {
    const { run } = this;
    this.waiting.begin("more");
    this.#ask(how, { run: run.id, after: run.seq });
  }

  /** Asks for something that waits for the device, under a name by which it can be taken back. */
  #ask(how, what) {
    this.ask = makeName();
    this.trigger(how, { ...what, ask: this.ask });
  }

  /** Its turn has come. */
  #goesOn() {
    this.waiting.end();
    this.stage.say("");
  }

  /** What was asked of a paused run does not come: it stays paused. */
  #held(said, kind) {
    this.run.steps = undefined;
    this.waiting.end();
    this.#state("paused");
    this.stage.say(said, kind);
  }

  /** Play or Step, pressed while another run has the device, leaves the queue. */
  #takeBack() {
    this.server.take_back(this.ask);
    this.#held(`Still paused after step ${this.run.trace.count}.`);
  }

  /** One more step on the server, if a run is paused there. Says whether it asked for one. */
  step() {
    const { run } = this;
    if (!run || this.stage.trace !== run.trace || run.state !== "paused") return false;
    if (run.steps === undefined && !run.wish) {
      run.steps = 1;
      this.#goOn("tick");
    }
    return true;
  }

  /** Ends the run after its present step; one that still waits for the device leaves the queue. */
  stop() {
    if (this.waiting.for("more") && this.waiting.place) return this.#takeBack();
    if (!this.waiting.on || this.waiting.what === "more") return this.#stopRun();
    this.cancelled = true;
    this.#leaveQueue();
    this.stage.say("Cancelled: nothing waits for the device any more.");
  }

  #leaveQueue() {
    if (this.waiting.for("run")) this.trigger("clear");
    else this.server.take_back(this.ask);
    this.waiting.end();
    this.#undo(this.branching);
    this.stage.lessons.gone();
  }

  async #stopRun() {
    const { run } = this;
    if (!run || run.state === "idle") return;
    this.#wish("stop");
    this.stage.say("Stopping after this step …");
    const last = await this.server.stop(run.id);
    if (last) {
      if (this.run === run && this.waiting.for("more")) this.server.take_back(this.ask); // Play, pressed just before
      return this.receive(`[${last}]`);
    }
    while ((await this.server.state(run.id)) === "running") await later(ASK_MS);
    await later(GRACE_MS); // for its last messages; a run that the server has dropped has none
    if (this.run === run && !run.over) this.#end({ end: "stopped" });
  }

  /** What was asked for and has not worked yet. */
  #wish(wish) {
    if (this.run) this.run.wish = wish;
    tell("wish", wish);
  }

  #state(state) {
    if (this.run) this.run.state = state;
    this.stage.root.dataset.state = state;
    this.stage.timeline.setState(state);
    tell("state", state);
  }
}

export function connect({ element, props, trigger, server, watch, base }) {
  const root = element.querySelector(".sl-stage");
  const live = new Live({ root, server, trigger, base });
  root.before(phoneActions({ press: pressRun, openForm: openSidebar }));
  addSkipLink(live.stage.grids);
  window.surelock = { stage: live.stage, live }; // for the browser's console and the tests
  watch("value", () => live.receive(props.value));
  if (props.value) live.receive(props.value); // what came before anyone listened
  for (const type of ["pointerdown", "keydown"])
    document.querySelector(".sidebar")?.addEventListener(type, ({ target }) => {
      if (!target.closest("#sl-run, .sl-controls")) live.touched = true; // Run changes nothing in the form
    });
  live.arrive();
  closeSidebarIfNarrow();
  tell("stage");
}
