// Runs that the server computes. A source is the page's one door to runs, wherever they come from:
// start(request, hear) -> {pause, resume, step, stop, leave}, top(lane, cell, step), token(text, model),
// attended(trace, lane, cell, step), document(run).

const ASK_MS = 120;
const GRACE_MS = 1000;
const later = (ms) => new Promise((then) => setTimeout(then, ms));

export class ServerSource {
  /** queue: see Queue. server: the stage's functions that wait for nothing, see surelock/ui/stage.py. */
  constructor({ queue, server }) {
    Object.assign(this, { queue, server });
  }

  /** Asks for a run. hear(messages): {place} of it in the queue, {refused} or {lost}, a sentence, or the run's own. */
  start(request, hear) {
    return new ServerRun(this, request, hear);
  }

  /** What the server has of the run with that id, or null. */
  document(run) {
    return this.server.export(run);
  }

  /** [[id, piece, p], ...]: likely tokens at a position, or null. */
  async top({ source }, cell, step) {
    if (!source?.run || step < 0) return null;
    return (await this.server.top(source.run, cell, step))?.[source.id] ?? null;
  }

  token(text, model) {
    return this.server.token(model, text);
  }

  attended(trace, lane, cell, step) {
    return this.server.attended(trace.header.model.name, [...lane.tokens(step - 1)], cell);
  }
}

class ServerRun {
  #asked = null; // of the queue
  #seq = -1;

  constructor({ queue, server }, request, hear) {
    Object.assign(this, { queue, server, hear, id: null });
    this.#ask("start", [request]);
  }

  #ask(name, data) {
    this.#asked = this.queue.ask(name, data, ({ text, over, ...told }) => {
      if (text !== undefined) this.#take(JSON.parse(text));
      else if (!over) this.hear([told]);
    });
  }

  /** Those of the run's own messages that were not here yet. */
  #take(messages) {
    const fresh = messages.filter(({ run, seq }) => run === null || seq > this.#seq);
    for (const message of fresh)
      if (message.run) {
        this.id = message.run;
        this.#seq = message.seq;
      }
    if (fresh.length) this.hear(fresh);
  }

  leave() {
    this.#asked.leave();
  }

  /** Resolves once no step of it is computed any more. */
  async pause() {
    await this.server.pause(this.id);
    await this.#rests();
  }

  resume() {
    this.#ask("follow", [this.id, this.#seq, null]);
  }

  step() {
    this.#ask("follow", [this.id, this.#seq, 1]);
  }

  /** Ends it after its present step. Resolves when its last message must have come; a run that the server has dropped has none. */
  async stop() {
    const last = await this.server.stop(this.id);
    if (last) {
      this.leave(); // Play, pressed just before
      return this.#take([JSON.parse(last)]);
    }
    await this.#rests();
    await later(GRACE_MS);
  }

  async #rests() {
    while ((await this.server.state(this.id)) === "running") await later(ASK_MS);
  }
}
