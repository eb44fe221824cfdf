// Shows a run when the page opens: after a reload the run that was on show, for a link its run, else the recorded run.

import { reducedMotion } from "../dom.js";
import { MISSING, Part } from "../stage/part.js";
import { promptOf } from "../trace/prose.js";
import { readAddress, sameSettings, settingsOf } from "./address.js";
import { embeddedLanes } from "./embed.js";
import { recorded } from "./recorded.js";
import { page, say } from "./state.js";
import { keepRun } from "./visit.js";

const NO_FORM = "The settings of this link did not come: the connection was lost. Reload the page.";

const LEFT = "This run was interrupted by leaving the page or losing the connection: press Run to compute all of it.";

const asksForRecorded = (settings) =>
  !settings || (page.now.recorded !== null && sameSettings(settings, settingsOf(page.now.recorded)));

/** Shows the first run. */
export class Arriving {
  #sentences = new Set(); // the sentences about the link that were shown
  #opening = new Part(
    () => import("./provisional.js"),
    ({ provisional }) => provisional,
    () => this.stage.instead(MISSING),
  );

  /** kept: a Kept. fill(settings): puts a query's settings into the form when the form is ready. */
  constructor({ stage, live, kept, fill }) {
    Object.assign(this, { stage, live, kept, fill });
    page.follow(["arrived"], ({ arrived }) => this.#tell(arrived?.said));
  }

  async arrive() {
    const { settings, view, story, problem } = readAddress(location.search, location.hash);
    const { run, query, form } = this.kept.shown;
    if (view.byClock !== undefined) page.now.player.setRace(view.byClock);
    page.set({ recorded: await recorded });
    if (page.now.recorded) keepRun(page.now.recorded, "recorded", { kept: true });
    const kept = await this.kept.traces();
    for (const { trace, source } of kept) keepRun(trace, source, { kept: true });
    if (this.live.run || page.now.trace) return;
    const back = query === location.search.slice(1); // a reload or the browser's button Back, not a link
    if (!back && (story.touches || !asksForRecorded(settings))) return this.#showLink(settings, view, story, problem);
    const again = back && kept.find(({ trace }) => trace.key === run)?.trace;
    if (again && story.touches) Object.assign(again, { settings, touchedLane: story.touches.lane });
    if (again) this.#showAgain(again);
    else if (page.now.recorded) this.#showRecorded(settings, view);
    else return say("The recorded run could not be read; press Run to make one.");
    const isShown = again || asksForRecorded(settings); // whether the run on show is the address's run
    const missing = isShown && Object.keys(view).length ? this.stage.look(view) : "";
    const inForm = (back && form) || settings;
    const isSame = again ? sameSettings(inForm, settingsOf(again)) : asksForRecorded(inForm);
    page.set({ wanted: isShown ? null : view, ...(inForm && !isSame && { edited: inForm }) });
    if (back && form) this.fill(form);
    this.#tell(problem, missing, this.kept.tab.problem);
    this.stage.arrive(location.search);
  }

  /** Shows a link's prompt and masks until its run opens. The run is computed as soon as the form has its settings. */
  async #showLink(settings, view, story, problem) {
    const provisional = await this.#opening.use((provisional) => provisional);
    if (!provisional) return;
    const lanes = page.now.recorded?.header.lanes ?? [{ name: "Every token", compute: { kind: "everything" } }];
    const trace = provisional(settings, lanes);
    const model = new URLSearchParams(settings).get("model") ?? "";
    page.set({ prompt: trace.header.prompt, wanted: view, linked: { ...story, settings, model, problem } });
    this.stage.show(trace, { live: true, label: "This link:" });
    this.#tell(problem, this.kept.tab.problem);
    this.stage.arrive(location.search);
    const end = page.follow(["arrived"], ({ arrived }) => {
      if (!arrived) return;
      queueMicrotask(() => end()); // if the form is ready, this runs before `end` is set
      if (arrived.said === undefined) this.stage.instead(NO_FORM);
      else setTimeout(() => page.now.linked && this.live.pressForm());
    });
  }

  /** Shows sentences about the link. They come from this module and from the server, in any order. */
  #tell(...sentences) {
    const before = this.#sentences.size;
    for (const sentence of sentences) if (sentence) this.#sentences.add(sentence);
    if (this.#sentences.size > before && !this.live.run) say([...this.#sentences].join(" "));
  }

  #showAgain(trace) {
    this.stage.show(trace, { label: trace.interrupted ? "Interrupted:" : "As you left it:" });
    if (trace.interrupted) this.#tell(LEFT);
  }

  #showRecorded(settings, { step }) {
    const still = step !== undefined && asksForRecorded(settings);
    const play = !still && !reducedMotion(); // without motion the run is shown at its end
    const trace = embeddedLanes(page.now.recorded);
    page.set({ prompt: page.now.prompt || promptOf(trace) }); // the form may have a link's prompt already
    this.stage.show(trace, { play, label: "A recorded run:" });
  }
}
