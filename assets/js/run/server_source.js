// The server's routes (see docs/api.md). The page reaches runs through a source alone, wherever they come from:
// start(request, hear) -> {pause, resume, step, stop, leave}, top(lane, cell, step), token(text, model),
// attended(trace, lane, cell, step), document(run).

import "../loaded_first.js";
import { isText } from "../trace/damage.js";
import { unlessCut } from "./events.js";
import { edition } from "./files.js";
import { LOST, ServerRun, UPDATED } from "./server_run.js";

/** A name for the page that no other has; crypto.randomUUID is not there where the page came over plain http. */
export const newVisitor = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("");

/** On a Space, what tells ZeroGPU whose time a run takes: the page around this one gives it out. */
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
 * {answer} of the server, or {status, refused: a sentence, loading}.
 * null where the connection is cut, or a proxy says that no server is there.
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

export class ServerSource {
  visitor = newVisitor();
  runs = new Set(); // those on their way
  #opened;

  /** root: the address of the server's routes. opened: a promise of the edition that the page is of. */
  constructor(root, opened = edition().catch(unlessCut)) {
    this.root = root;
    this.#opened = opened;
  }

  /** Whether the server was updated since the page was opened. */
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
   * Asks for a run. hear(messages) gets messages of the run, and of the queue before it:
   * {place, seconds}, {status} ("": as before), or {refused} or {lost} with a sentence.
   */
  start(request, hear) {
    return new ServerRun(this, request, hear);
  }

  /** The page is left: nobody is there for its runs. */
  leave() {
    for (const { id } of this.runs) navigator.sendBeacon(new URL(`runs/${id}/stop`, this.root));
  }

  /** What the server has of the run with that id, or null. */
  document(run) {
    return this.#json(`runs/${run}/trace`);
  }

  /** [[id, piece, p], ...]: likely tokens at a position, or null. */
  async top({ id, source }, position, step) {
    if (!source?.run || step < 0) return null;
    return (await this.#json(`runs/${source.run}/top?step=${step}&position=${position}`))?.[id] ?? null;
  }

  /** Whether a model can run here: "ready", "loading", or a sentence why not. */
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
