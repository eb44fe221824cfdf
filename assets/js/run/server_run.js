// A run on the server: it is requested, followed by a stream, and ended. A stream that is cut is opened again.

import { having, isCount, isObject, isText, listOf } from "../trace/damage.js";
import { serverEvents, unlessCut } from "./events.js";
import { parsed } from "./tab.js";

export const LOST = "The connection to the server was lost";
const GOES_ON = `${LOST}: the run goes on by itself when it is back.`;
export const UPDATED = "The server was updated since this page was opened: reload the page.";

const LOADING_MS = 30_000; // how long a run waits for its model
const LOADS_MS = 1000; // the time between two requests while the model is loading
const SILENT_MS = 45_000; // a stream is dead after this silence, three times the time between two pings
const KEPT_MS = 600_000; // how long the server keeps a run without a reader
const AGAIN_MS = 250; // the first pause before a stream is opened again
const RARELY_MS = 8000; // the longest such pause
const STOP_MS = 10_000; // the longest wait for the last step of a run

/** The shapes of a stream's messages, by their names. */
const HOLDS = {
  place: having({ place: isCount }),
  open: having({ open: having({ header: isObject, pieces: isObject }) }),
  records: having({ records: listOf(isObject), pieces: isObject }),
  errors: having({ errors: listOf(isObject) }),
  end: having({ end: isText }),
};

const later = (ms) => new Promise((then) => setTimeout(then, ms));

/** A handle of the run. */
export class ServerRun {
  id = null;
  #last = -1; // the number of the latest message that the page has
  #stream = new AbortController();
  #streaming; // a promise of the end of the stream

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

  /** Requests the run, again and again until its model is loaded. Returns a message if the run cannot be started. */
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

  /** The reason of a refusal, or the sentence that the server was updated meanwhile. */
  async #newest(refused) {
    return (await this.source.isUpdated()) ? UPDATED : refused;
  }

  /** Follows `steps` steps of the run, or all. A stream that is cut is opened again, from the next message on. */
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

  /** The messages of events that the page does not have yet. */
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

  /** Gives up a run that has not opened. */
  leave() {
    this.#over();
    if (this.id) this.#end();
  }

  /** Pauses the run. The device is free after the present step, which is sent when the run resumes. */
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

  /**
   * Ends the run after its present step. The promise is fulfilled when the last message has arrived, or after
   * STOP_MS.
   */
  async stop() {
    if (await this.#end()) await Promise.race([this.#streaming, later(STOP_MS)]);
    this.#over();
  }
}
