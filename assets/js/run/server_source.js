// The source of runs on the server, by its routes (see docs/api.md). All sources of runs have the same methods:
// start(request, hear) -> {pause, resume, step, stop, leave}, top(lane, cell, step), token(text, model),
// attended(trace, lane, cell, step), document(run).

import "../loaded_first.js";
import { isText } from "../trace/damage.js";
import { unlessCut } from "./events.js";
import { edition } from "./files.js";
import { LOST, ServerRun, UPDATED } from "./server_run.js";

/** A random name for this page. crypto.randomUUID does not exist on pages that were loaded by plain HTTP. */
export const newVisitor = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("");

/** On a Space, the headers by which ZeroGPU counts a run against the visitor's quota. The outer page provides them. */
async function spaceHeaders() {
  const outer = window.parent !== window && location.hostname.endsWith(".hf.space") && window.supports_zerogpu_headers;
  if (!outer) return {};
  const { port1, port2 } = new MessageChannel();
  return new Promise((then) => {
    port1.onmessage = ({ data }) => {
      port1.close();
      then(data ?? {});
    };
    window.parent.postMessage("zerogpu-headers", "https://huggingface.co", [port2]);
  });
}

/**
 * A promise of {answer}, or of {status, refused, loading} if the server refuses; refused: a sentence.
 * Null if the connection is cut, or if a proxy reports that there is no server.
 */
async function answerTo(url, options) {
  const answer = await fetch(url, options).catch(unlessCut);
  if (!answer || answer.ok) return answer && { answer };
  const { status } = answer;
  const { detail, loading } = (await answer.json().catch(unlessCut)) ?? {};
  if (isText(detail) && detail.split(" ").length > 3) return { status, refused: detail, loading }; // not “Not Found”
  if (status === 429) return { status, refused: "The server has too much to do: try again in a moment." };
  return status >= 500 ? null : { status, refused: UPDATED };
}

/** The source. */
export class ServerSource {
  visitor = newVisitor();
  runs = new Set(); // the runs that have not ended
  #opened;

  /** root: the address of the server's routes. opened: a promise of the edition of this page. */
  constructor(root, opened = edition().catch(unlessCut)) {
    this.root = root;
    this.#opened = opened;
  }

  /** A promise of whether the server was updated after the page was opened. */
  async isUpdated() {
    const opened = await this.#opened;
    const now = await edition().catch(unlessCut);
    return Boolean(opened && now) && opened !== now;
  }

  /** See `answerTo`. after: the number of the last message that the page has. */
  async ask(path, { after = -1, body, signal } = {}) {
    const headers = { "x-surelock-visitor": this.visitor, ...(await spaceHeaders()) };
    if (after >= 0) headers["last-event-id"] = `${after}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    const post = body !== undefined && { method: "POST", body: JSON.stringify(body) };
    return answerTo(new URL(path, this.root), { headers, signal, ...post });
  }

  async #json(path, body) {
    const { answer } = (await this.ask(path, { body })) ?? {};
    return answer ? answer.json().catch(unlessCut) : null;
  }

  /**
   * Requests a run. hear(messages): called with messages of the run, and before them with messages of the queue:
   * {place, seconds}, {status} ("" if nothing changed), or {refused} or {lost} with a sentence.
   */
  start(request, hear) {
    return new ServerRun(this, request, hear);
  }

  /** Called when the page is left: stops its runs. */
  leave() {
    for (const { id } of this.runs) navigator.sendBeacon(new URL(`runs/${id}/stop`, this.root));
  }

  /** A promise of the server's document of a run, or of null. run: the id of the run. */
  document(run) {
    return this.#json(`runs/${run}/trace`);
  }

  /** A promise of [[id, piece, p], ...], the likely tokens of a position, or of null. */
  async top({ id, source }, position, step) {
    if (!source?.run || step < 0) return null;
    return (await this.#json(`runs/${source.run}/top?step=${step}&position=${position}`))?.[id] ?? null;
  }

  /** A promise of the state of a model: "ready", "loading", or the reason why it cannot run, a sentence. */
  async state(model) {
    return (await this.#json(`models/${encodeURIComponent(model)}/state`))?.state ?? `${LOST}.`;
  }

  async token(text, model) {
    return (await this.#json("token", { model, text })) ?? { problem: `${LOST}.` };
  }

  attended(trace, lane, position, step) {
    return this.#json("attended", { model: trace.header.model.name, tokens: [...lane.tokens(step - 1)], position });
  }
}
