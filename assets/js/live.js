// The stage inside the Gradio page: the stream of a run comes in as the component's value, the buttons' wishes go out.

import { listen, tell } from "./bus.js";
import { closeSidebarIfNarrow } from "./controls.js";
import { embed, embedded } from "./embed.js";
import { recorded } from "./recorded.js";
import { Stage } from "./stage.js";
import { MOST_LANES, Trace } from "./trace.js";

const LOOP_PAUSE_MS = 5000;

/** A link that reopens the page with this run's prompt, settings and contestants (without what was done by hand). */
function linkTo({ header, reference }) {
  const query = new URLSearchParams({ model: header.model.name, prompt: header.prompt ?? "" });
  for (const [name, value] of Object.entries(reference.contestant.settings))
    if (value !== null && value !== undefined) query.set(name, value);
  const own = header.contestants.filter(({ events }) => !events?.length);
  const lanes = own.map(({ name, compute, unmask }) => ({ name, compute, unmask }));
  query.set("contestants", JSON.stringify(lanes));
  return `${location.origin}${location.pathname}?${query}`;
}

class Live {
  constructor({ root, server, trigger, base }) {
    Object.assign(this, { server, trigger, base, run: null, presets: [] });
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
      stepLive: () => this.step(),
      onLive: (wish) => this[wish](),
      onUse: (trace) => this.#use(trace),
      whatIf: {
        branch: (lane, event, name) => this.branch(lane, event, name),
        token: (text) => server.token(this.stage.trace.header.model.name, text),
        presets: () => this.presets,
      },
    });
    embed(root);
    for (const wish of ["pause", "resume", "stop"]) listen(wish, () => this[wish]());
    listen("step", () => this.stage.timeline.move(1));
    listen("run", () => this.#started());
    listen("controls", () => this.#state(this.run?.state ?? "idle"));
    this.#state("idle");
  }

  /** Something moves before anyone presses anything. */
  async playRecorded() {
    const whole = await recorded;
    if (!whole) return this.stage.say("The recorded run could not be read; press Run to make one.");
    if (this.run || this.stage.trace) return;
    this.stage.runs.add(whole, "recorded");
    const { trace, ...how } = embedded(whole);
    this.stage.show(trace, { ...how, label: "A recorded run; press Run to make your own:" });
    if (how.play) this.#loop(trace);
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
      if (touched || this.stage.trace !== trace) return;
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
    if (message.refused || message.open) clearInterval(this.queueTimer);
    if (message.refused) return this.#refused(message.refused);
    if (message.open) return this.#open(message);
    const { run } = this;
    if (!run || message.run !== run.id || message.seq <= run.seq) return;
    if (message.seq !== run.seq + 1) {
      this.lost = (this.lost ?? 0) + 1;
      return this.trigger("play", { run: run.id, after: run.seq });
    }
    run.seq = message.seq;
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

  #refused(why) {
    this.branching?.undo();
    this.branching = null;
    this.#state("idle");
    this.stage.say(why, "error");
  }

  #open({ run: id, seq, open, pausable }) {
    const { branching } = this;
    const trace = branching?.trace ?? new Trace(open);
    trace.growing = open.header.contestants.map(({ id: own }) => trace.lane(own));
    for (const lane of trace.growing) lane.source = { run: id, id: lane.id };
    this.run = { id, seq, trace, pausable, state: "running", behind: 1, branching };
    if (branching) {
      trace.live = true;
      this.stage.timeline.load(trace, { live: true, step: branching.from - 1 });
    } else this.stage.show(trace, { live: true, label: "Your run:" });
    this.branching = null;
    this.stage.say("");
    this.#state("running");
  }

  #end({ end, problem }) {
    this.#showNew();
    const { trace, branching } = this.run;
    this.#state("idle");
    trace.live = false;
    const inVain = Boolean(branching) && branching.child.count === branching.from; // no step of its own came
    const finished = branching ? "what if" : "live";
    if (trace.count && !inVain) this.stage.runs.add(trace, end === "finished" ? finished : end);
    if (this.stage.trace === trace) {
      if (inVain) branching.undo();
      else this.stage.finish();
    }
    this.stage.say(
      problem ?? (end === "stopped" ? `Stopped after step ${trace.count}.` : ""),
      problem ? "error" : "note",
    );
  }

  #started() {
    if (this.run && this.run.state !== "idle") this.stop();
    this.stage.say("Starting …");
    this.#watchQueue();
  }

  /** Gradio tells the place in the queue in a corner of the page; the stage says it where everybody looks. */
  #watchQueue() {
    clearInterval(this.queueTimer);
    this.queueTimer = setInterval(() => {
      const said = document.getElementById("sl-queue")?.textContent ?? "";
      const [, place, all] = said.match(/queue:\s*(\d+)\s*\/\s*(\d+)/) ?? [];
      if (/error/i.test(said)) {
        clearInterval(this.queueTimer);
        this.stage.say("The server refused this run; its message is in the corner of the page.", "error");
      } else if (place) this.stage.say(`Waiting for the device: place ${place} of ${all} in the queue.`);
    }, 300);
  }

  /** Puts a run's model, prompt, settings and contestants into the form, as opening its link does. */
  async #use(trace) {
    const state = await this.server.model_state(trace.header.model.name);
    if (state !== "ready" && state !== "loading") return this.stage.say(state, "error");
    this.trigger("select", Object.fromEntries(new URL(linkTo(trace)).searchParams));
    this.stage.say("The form holds the settings of this run; press Run to race them.");
  }

  /** Starts a contestant that is `parent` with one event more, beside it from that event's step on. Gives a sentence where it cannot. */
  branch(parent, event, name) {
    const { trace } = this.stage;
    const events = [...(parent.contestant.events ?? []), event];
    const before = this.run?.trace === trace && this.run.state !== "idle" ? this.run : null;
    if (before) this.server.stop(before.id); // its unfinished contestants go on in the new run
    const shown = this.#roomFor(trace, parent);
    const taken = new Set(shown.lanes.map(({ id }) => id));
    const id = Array.from({ length: 99 }, (_, i) => `what-if-${i + 1}`).find((own) => !taken.has(own));
    const unfinished = before ? shown.lanes.filter((lane) => !lane.endsAt(lane.count - 1)) : [];
    const child = shown.branch({ ...parent.contestant, id, name, events, parent: parent.id }, event.step);
    const lanes = [...unfinished, child].map((lane) => ({ ...lane.contestant, skip: lane.count }));
    this.branching = { trace: shown, child, from: event.step, undo: () => this.stage.show(trace) };
    this.run = null;
    this.stage.show(shown, { label: "What if:", step: event.step - 1 });
    this.stage.say("Starting …");
    this.#watchQueue();
    const { model, prompt, prompt_tokens } = trace.header;
    this.trigger("apply", { model: model.name, prompt, prompt_tokens, lanes });
    return "";
  }

  /** The trace with room for one lane more: where four race, the parent and the reference stay. */
  #roomFor(trace, parent) {
    const kept = trace.lanes.filter(
      (lane) => trace.lanes.length < MOST_LANES || lane === parent || lane === trace.reference,
    );
    return trace.withLanes(kept);
  }

  async pause() {
    if (this.run?.state !== "running") return;
    if (!this.run.pausable) {
      this.stage.timeline.seek(this.stage.timeline.step - 1);
      return this.stage.say("Only the display is paused: this server’s device cannot hold a run.");
    }
    this.#state("paused");
    await this.server.pause(this.run.id);
  }

  resume() {
    const { run } = this;
    if (run?.state !== "paused") return;
    this.#state("running");
    this.stage.timeline.followLive();
    this.trigger("play", { run: run.id, after: run.seq });
  }

  /** One more step on the server, if a run is paused there. Says whether it asked for one. */
  step() {
    const { run } = this;
    if (!run || this.stage.trace !== run.trace || run.state !== "paused") return false;
    if (run.steps === undefined) {
      run.steps = 1;
      this.trigger("tick", { run: run.id, after: run.seq });
    }
    return true;
  }

  async stop() {
    const { run } = this;
    if (!run || run.state === "idle") return;
    const last = await this.server.stop(run.id);
    if (last) this.receive(`[${last}]`);
  }

  #state(state) {
    if (this.run) this.run.state = state;
    this.stage.root.dataset.state = state;
    this.stage.timeline.setState(state);
    tell("state", state);
  }
}

export function connect({ element, props, trigger, server, watch, base }) {
  const live = new Live({ root: element.querySelector(".sl-stage"), server, trigger, base });
  window.surelock = { stage: live.stage, live }; // for the browser's console and the tests
  watch("value", () => live.receive(props.value));
  live.playRecorded();
  closeSidebarIfNarrow();
  tell("stage");
}
