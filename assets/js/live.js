// The stage inside the Gradio page: the stream of a run comes in as the component's value, the buttons' wishes go out.

import { listen, tell } from "./bus.js";
import { closeSidebarIfNarrow } from "./controls.js";
import { recorded } from "./recorded.js";
import { Stage } from "./stage.js";
import { Trace } from "./trace.js";

const LOOP_PAUSE_MS = 5000;
const LINKED = [
  "gen_length",
  "steps",
  "block_length",
  "temperature",
  "cfg_scale",
  "remasking",
  "threshold",
  "seed",
  "suppress_eos",
  "suppress_eos_confidence",
  "no_repeat_ngram_size",
];

/** A link that reopens the page with this run's prompt and settings. */
function linkTo({ header }) {
  const query = new URLSearchParams({ model: header.model.name, prompt: header.prompt ?? "" });
  for (const name of LINKED)
    if (header.settings[name] !== null && header.settings[name] !== undefined) query.set(name, header.settings[name]);
  for (const name of ["epsilon", "percentile", "visible_steps"])
    if (typeof header.lock?.[name] === "number") query.set(name, header.lock[name]);
  return `${location.origin}${location.pathname}?${query}`;
}

class Live {
  constructor({ root, server, trigger, base }) {
    Object.assign(this, { server, trigger, base, run: null });
    this.stage = new Stage(root, {
      plotly: new URL("plotly.min.js", base).href,
      source: {
        document: (trace) => (trace.id ? server.export(trace.id) : null),
        shell: () => server.shell(),
        link: linkTo,
      },
      fetchTop: (trace, cell, step) => (trace.id && step >= 0 ? server.top(trace.id, cell, step) : null),
      stepLive: () => this.step(),
    });
    for (const wish of ["pause", "resume", "stop"]) listen(wish, () => this[wish]());
    listen("step", () => this.stage.timeline.move(1));
    listen("run", () => this.#started());
    listen("controls", () => this.#state(this.run?.state ?? "idle"));
    this.#state("idle");
  }

  /** Something moves before anyone presses anything. */
  async playRecorded() {
    const trace = await recorded;
    if (!trace) return this.stage.say("The recorded run could not be read; press Run to make one.");
    if (this.run || this.stage.trace) return;
    this.stage.runs.add(trace, "recorded");
    this.stage.show(trace, { play: true, label: "A recorded run; press Run to make your own:" });
    this.#loop(trace);
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
    if (message.refused) {
      this.#state("idle");
      return this.stage.say(message.refused, "error");
    }
    if (message.open) return this.#open(message);
    const { run } = this;
    if (!run || message.run !== run.id || message.seq <= run.seq) return;
    if (message.seq !== run.seq + 1) {
      this.lost = (this.lost ?? 0) + 1;
      return this.trigger("play", { run: run.id, after: run.seq });
    }
    run.seq = message.seq;
    if (message.end) return this.#end(message);
    run.trace.addPieces(message.pieces);
    for (const record of message.records) run.trace.append(record);
    run.grown = true;
    if (run.steps !== undefined && --run.steps <= 0) {
      run.steps = undefined;
      this.#state("paused");
    }
  }

  #open(message) {
    const trace = new Trace(message.open);
    trace.id = message.run;
    this.run = { id: message.run, seq: message.seq, trace, pausable: message.pausable, state: "running" };
    this.stage.show(trace, { live: true, label: "Your run:" });
    this.stage.say("");
    this.#state("running");
  }

  #end({ end, problem }) {
    this.#showNew();
    const { trace } = this.run;
    this.#state("idle");
    trace.live = false;
    if (trace.count) this.stage.runs.add(trace, end === "finished" ? "live" : end);
    if (this.stage.trace === trace) this.stage.finish();
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
      const [, place, all] =
        document.getElementById("sl-queue")?.textContent.match(/queue:\s*(\d+)\s*\/\s*(\d+)/) ?? [];
      if (/error/i.test(document.getElementById("sl-queue")?.textContent)) {
        clearInterval(this.queueTimer);
        this.stage.say("The server refused this run; its message is in the corner of the page.", "error");
      } else if (place) this.stage.say(`Waiting for the device: place ${place} of ${all} in the queue.`);
    }, 300);
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
    tell("state", state);
  }
}

export function connect({ element, props, trigger, server, watch, base }) {
  const live = new Live({ root: element.querySelector(".sl-stage"), server, trigger, base });
  window.surelock = { stage: live.stage, live }; // for the browser's console and the tests
  watch("value", () => live.receive(props.value));
  live.playRecorded();
  closeSidebarIfNarrow();
}
