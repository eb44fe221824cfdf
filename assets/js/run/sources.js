// Chooses between the two sources of runs, the server and the browser. The settings, or else the visitor, decide.

import { serverChoice } from "../trace/described.js";
import { codesOf } from "../trace/typed.js";
import { page } from "./state.js";

const INSTEAD = "The server does not answer: this browser computes it.";
const OFFER = " This server can compute it instead: choose it in the settings.";

/** Both sources as one. */
export class Sources {
  #of = new Map(); // the source of a run, by the run's id

  constructor(server, browser) {
    Object.assign(this, { server, browser });
  }

  #chosen(model) {
    return page.now.source === "browser" && this.browser.decodes(model) ? this.browser : this.server;
  }

  /** Whether this page may decode a model in the browser, and the browser can. */
  #browserDecodes(model) {
    return page.now.sources.includes("browser") && this.browser.decodes(model);
  }

  /** The source of a new run. Some policies only run on the server, and typed rules only in the browser. */
  #startedBy({ model, lanes, from, link }) {
    if (lanes.some(serverChoice)) return this.server;
    // A branch is computed by the same engine as its run.
    if (from && this.#of.has(from.run)) return this.#of.get(from.run);
    if (link && this.#browserDecodes(model)) return this.browser;
    const typed = codesOf(lanes).length > 0 && this.#browserDecodes(model);
    return typed ? this.browser : this.#chosen(model);
  }

  /**
   * Starts a run. link: whether a link requests it. Such a run is computed in the browser, if possible, without a
   * queue.
   */
  start({ link = false, ...request }, hear) {
    const source = this.#startedBy({ ...request, link });
    const inBrowser = this.#browserDecodes(request.model) && !request.lanes.some(serverChoice);
    if (source === this.server && request.prompt_tokens && inBrowser) return this.#startEither(request, hear);
    return this.#startAt(source, request, hear);
  }

  #startAt(source, request, hear) {
    const offers = source === this.browser && page.now.sources.includes("server");
    const withOffer = (message) => (message.lost ? { ...message, lost: message.lost + OFFER } : message);
    return source.start(request, (messages) => {
      for (const { open, run } of messages) if (open) this.#of.set(run, source);
      hear(offers ? messages.map(withOffer) : messages);
    });
  }

  /** Starts a branch of a run on the server. If the server does not answer, the browser computes the branch. */
  #startEither(request, hear) {
    let opened = false;
    let handle = this.#startAt(this.server, request, (messages) => {
      opened ||= messages.some(({ open }) => open);
      if (opened || !messages.some(({ lost }) => lost)) return hear(messages);
      hear([{ status: INSTEAD }]);
      handle = this.#startAt(this.browser, request, hear);
    });
    const forward = (name) => () => handle[name](); // to the present handle
    return Object.fromEntries(["leave", "pause", "resume", "step", "stop"].map((name) => [name, forward(name)]));
  }

  document(run) {
    return this.#of.get(run)?.document(run) ?? null;
  }

  async top(lane, cell, step) {
    return this.#of.get(lane.source?.run)?.top(lane, cell, step) ?? null;
  }

  /** The source that answers questions: the server until the browser has loaded its decoder. */
  #answers(model) {
    return page.now.decoder || !page.now.sources.includes("server") ? this.#chosen(model) : this.server;
  }

  token(text, model) {
    return this.#answers(model).token(text, model);
  }

  attended(trace, lane, cell, step) {
    return this.#answers(trace.header.model.name).attended(trace, lane, cell, step);
  }
}
