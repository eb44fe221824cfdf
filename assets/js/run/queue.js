// Gradio's queue by its own routes: what is asked for joins it (queue/join), its messages come by one stream of the
// session (queue/data), and it can be taken back (cancel). Gradio's client would open a heartbeat of its own beside the
// page's, of the six connections that a browser has for a server, and keeps to itself why a queue is full.

const LOST = "The connection to the server was lost.";

/** On a Space, what tells ZeroGPU whose time a run takes: the page around this one gives it out. */
async function visitorHeaders() {
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

/** A name for the page that no other has; crypto.randomUUID is not there where the page came over plain http. */
export const newSession = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("");

export class Queue {
  #asked = new Map(); // by the event's id
  #joining = 0;
  #early = []; // messages that came before the answer which tells their id
  #stream = null;

  /** root: the address of Gradio's routes. functions: their numbers by name. session: the page's name for itself. */
  constructor({ root, functions, session }) {
    Object.assign(this, { root, functions, session });
  }

  /** Asks for what a function answers. hear(message): {place}: so many are before it. {text}: a part of the answer.
   * {refused: a sentence}, {lost: a sentence} or {over: true}: the last one. */
  ask(name, data, hear) {
    const asked = { hear, id: null, over: false };
    this.#join(asked, { fn_index: this.functions[name], data, session_hash: this.session });
    return { leave: () => this.#leave(asked) };
  }

  #end(asked, message) {
    if (asked.over) return;
    asked.over = true;
    asked.hear(message);
  }

  /** It is not wanted any more: out of the queue with it, now or as soon as it is in. */
  #leave(asked) {
    asked.over = true;
    if (asked.id) this.#cancel(asked.id);
  }

  #cancel(id) {
    this.#asked.delete(id);
    // without the function's number: all that the session has running of it would be ended, too
    this.#post("cancel", { event_id: id, session_hash: this.session, fn_index: -1 }).catch(noNetwork);
  }

  async #join(asked, body) {
    this.#joining++;
    try {
      const answer = await this.#post("queue/join", body, await visitorHeaders());
      const { event_id: id, detail } = await answer.json();
      if (!answer.ok) return this.#end(asked, { refused: detail });
      asked.id = id;
      if (asked.over) return this.#cancel(id);
      this.#asked.set(id, asked);
      for (const message of this.#early.filter(({ event_id }) => event_id === id)) this.#hear(message);
      this.#listen();
    } catch (error) {
      noNetwork(error);
      this.#end(asked, { lost: LOST });
    } finally {
      if (!--this.#joining) this.#early = [];
    }
  }

  #post(route, body, headers = {}) {
    return fetch(new URL(route, this.root), {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  }

  #listen() {
    if (this.#stream || !this.#asked.size) return;
    const stream = new EventSource(new URL(`queue/data?session_hash=${this.session}`, this.root));
    this.#stream = stream;
    stream.onmessage = ({ data }) => this.#stream === stream && this.#hear(JSON.parse(data) ?? {});
    stream.onerror = () => this.#stream === stream && this.#closed({ lost: LOST });
  }

  /** The stream has ended; with it, where that is said, all that was asked for. */
  #closed(last) {
    this.#stream.close();
    this.#stream = null;
    if (!last) return this.#listen(); // for what was asked for meanwhile
    const left = [...this.#asked.values()];
    this.#asked.clear();
    for (const asked of left) this.#end(asked, last);
  }

  #hear(message) {
    const { msg, event_id: id, output } = message;
    if (msg === "close_stream") return this.#closed(null);
    if (msg === "unexpected_error") return this.#closed({ lost: LOST });
    const asked = this.#asked.get(id);
    if (!asked) return this.#joining && this.#early.push(message);
    if (msg === "estimation") asked.hear({ place: (message.rank ?? 0) + 1 });
    else if (msg === "process_starts") asked.hear({ place: 0 });
    else if (msg === "process_generating" && message.success) {
      const text = whole(output?.data?.[0]);
      if (typeof text === "string") asked.hear({ text });
    } else if (`${msg}`.startsWith("process_")) {
      this.#asked.delete(id);
      this.#end(asked, message.success ? { over: true } : { refused: output?.error ?? LOST });
    }
  }
}

/** The first answer comes whole, later ones as differences: here always another text in its place. */
const whole = (value) => (Array.isArray(value) ? value[0]?.[2] : value);

function noNetwork(error) {
  if (!(error instanceof TypeError || error instanceof SyntaxError)) throw error;
}
