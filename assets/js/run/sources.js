// Where runs are computed, where the page has two sources of them: by the source that the settings choose.

import { serverChoice } from "../trace/described.js";
import { codesOf } from "../trace/typed.js";
import { page } from "./state.js";

const INSTEAD = "The server does not answer: this browser computes it.";
const OFFER = " This server can compute it instead: choose it in the settings.";

export class Sources {
  #of = new Map(); // sources by the ids of their runs

  constructor(server, browser) {
    Object.assign(this, { server, browser });
  }

  #chosen(model) {
    return page.now.source === "browser" && this.browser.decodes(model) ? this.browser : this.server;
  }

  /** Whether this browser may decode a model, and can. */
  #browserDecodes(model) {
    return page.now.sources.includes("browser") && this.browser.decodes(model);
  }

  /** Some policies run on the server, and a typed rule in the browser, whatever is chosen. */
  #startedBy({ model, lanes, from, link }) {
    if (lanes.some(serverChoice)) return this.server;
    if (from && this.#of.has(from.run)) return this.#of.get(from.run); // both lanes come from one engine
    if (link && this.#browserDecodes(model)) return this.browser;
    const typed = codesOf(lanes).length > 0 && this.#browserDecodes(model);
    return typed ? this.browser : this.#chosen(model);
  }

  /** link: whether a link asks for it, which no queue delays where the browser has the model. */
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

  /** A branch of the server's, which the browser computes where no server answers. */
  #startEither(request, hear) {
    let opened = false;
    let handle = this.#startAt(this.server, request, (messages) => {
      opened ||= messages.some(({ open }) => open);
      if (opened || !messages.some(({ lost }) => lost)) return hear(messages);
      hear([{ status: INSTEAD }]);
      handle = this.#startAt(this.browser, request, hear);
    });
    const forward = (name) => () => handle[name](); // to the handle of that time
    return Object.fromEntries(["leave", "pause", "resume", "step", "stop"].map((name) => [name, forward(name)]));
  }

  document(run) {
    return this.#of.get(run)?.document(run) ?? null;
  }

  async top(lane, cell, step) {
    return this.#of.get(lane.source?.run)?.top(lane, cell, step) ?? null;
  }

  /** The server answers while the browser has nothing fetched yet. */
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
