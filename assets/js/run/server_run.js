// A run that the server computes: asked for, followed by a stream that goes on by itself when it was cut, and ended.

import { having, isCount, isObject, isText, listOf } from "../trace/damage.js";
import { serverEvents, unlessCut } from "./events.js";
import { parsed } from "./tab.js";

export const LOST = "The connection to the server was lost";
const GOES_ON = `${LOST}: the run goes on by itself when it is back.`;
export const UPDATED = "The server was updated since this page was opened: reload the page.";

const LOADING_MS = 30_000; // that a run waits for its model, and between two questions for it
const LOADS_MS = 1000;
const SILENT_MS = 45_000; // three times what lies between two signs of life of a stream
const KEPT_MS = 600_000; // the server keeps a run no longer without its page
const AGAIN_MS = 250; // between two tries to go on
const RARELY_MS = 8000;
const STOP_MS = 10_000; // for a run's last step

/** What a stream's messages hold, by their names. */
const HOLDS = {
  place: having({ place: isCount }),
  open: having({ open: having({ header: isObject, pieces: isObject }) }),
  records: having({ records: listOf(isObject), pieces: isObject }),
  errors: having({ errors: listOf(isObject) }),
  end: having({ end: isText }),
};

const later = (ms) => new Promise((then) => setTimeout(then, ms));

export class ServerRun {
  id = null;
  #last = -1; // the number of the latest message that the page has
  #stream = new AbortController();
  #streaming; // a promise of that stream's end

  constructor(source, request, hear) {
    Object.assign(this, { source, hear });
    this.#streaming = this.#begin(request, this.#stream.signal);
  }

  async #begin(request, signal) {
    const problem = await this.#make(request, signal);
    if (signal.aborted) return this.leave();
    if (problem) return this.hear([problem]);
    this.source.runs.add(this);
    return this.#follow(Number.POSITIVE_INFINITY, signal);
  }

  /** Gives the run its id, once its model is loaded; else what is wrong. */
  async #make(request, signal) {
    const until = performance.now() + LOADING_MS;
    for (;;) {
      const { answer, refused, loading } = (await this.source.ask("runs", { body: request })) ?? {};
      if (answer) this.id = (await answer.json().catch(unlessCut))?.id ?? null;
      if (this.id) return null;
      if (!refused) return answer ? { refused: UPDATED } : { lost: `${LOST}.` };
      if (!loading || signal.aborted || performance.now() > until) return { refused: await this.#newest(refused) };
      this.hear([{ status: refused }]);
      await later(LOADS_MS);
    }
  }

  /** Why the server refused, or that it was updated meanwhile. */
  async #newest(refused) {
    return (await this.source.isUpdated()) ? UPDATED : refused;
  }

  /** Hears of so many steps, or all; a stream that is cut is opened again, from the next message on. */
  async #follow(steps, signal) {
    let left = steps;
    let pause = AGAIN_MS;
    let cutAt = null;
    while (!signal.aborted) {
      const path = `runs/${this.id}/events${left < Number.POSITIVE_INFINITY ? `?steps=${left}` : ""}`;
      const { answer, status, refused } = (await this.source.ask(path, { after: this.#last, signal })) ?? {};
      for await (const events of answer ? serverEvents(answer, SILENT_MS) : []) {
        if (signal.aborted) return;
        if (cutAt !== null) this.hear([{ status: "" }]);
        [cutAt, pause] = [null, AGAIN_MS];
        const messages = this.#fresh(events);
        left -= messages.filter(({ records }) => records).length;
        this.hear(messages);
        if (messages.some(({ end, lost }) => end || lost)) return this.#over();
      }
      if (signal.aborted || left <= 0) return;
      if (status === 404) return this.#over({ lost: await this.#newest(refused) });
      if (refused) return this.hear([{ refused }]);
      if (cutAt === null) this.hear([{ status: GOES_ON }]);
      cutAt ??= performance.now();
      if (performance.now() - cutAt > KEPT_MS) return this.#over({ lost: `${LOST}.` });
      await later(pause);
      pause = Math.min(2 * pause, RARELY_MS);
    }
  }

  /** The messages that had not come yet. */
  #fresh(events) {
    const messages = [];
    for (const { event, id, data } of events) {
      const message = parsed(data);
      if (!HOLDS[event]?.(message)) return [...messages, { lost: UPDATED }];
      if (event !== "place" && Number(id) <= this.#last) continue;
      if (event !== "place") this.#last = Number(id);
      messages.push(event === "open" ? { ...message, run: this.id } : message);
    }
    return messages;
  }

  #over(...last) {
    this.#stream.abort();
    this.source.runs.delete(this);
    if (last.length) this.hear(last);
  }

  #end() {
    return this.source.ask(`runs/${this.id}/stop`, { body: {} });
  }

  /** A run that has not opened is not wanted any more. */
  leave() {
    this.#over();
    if (this.id) this.#end();
  }

  /** The device is free after its present step, which comes once the run goes on. */
  async pause() {
    this.#stream.abort();
  }

  resume(steps = Number.POSITIVE_INFINITY) {
    this.#stream.abort();
    this.#stream = new AbortController();
    this.#streaming = this.#follow(steps, this.#stream.signal);
  }

  step() {
    this.resume(1);
  }

  /** Ends it after its present step. Resolves when its last message must have come. */
  async stop() {
    if (await this.#end()) await Promise.race([this.#streaming, later(STOP_MS)]);
    this.#over();
  }
}
