// ServerSource (server_source.js), fetched when it is first asked for anything.

import { MISSING, Part } from "../stage/part.js";
import { edition } from "./files.js";

const RUN = ["leave", "pause", "resume", "step", "stop"];

export class ServerClient {
  #opened = edition().catch(() => null); // of the page, as it was opened
  #part;
  #ask =
    (name) =>
    (...asked) =>
      this.#part.use((source) => source[name](...asked));
  document = this.#ask("document");
  top = this.#ask("top");
  token = this.#ask("token");
  attended = this.#ask("attended");
  state = this.#ask("state");

  /** root: the address of the server's routes. */
  constructor(root) {
    this.#part = new Part(
      async () => (await import("./server_source.js")).ServerSource,
      (ServerSource) => new ServerSource(root, this.#opened),
      () => null,
    );
  }

  /** The page is left. */
  leave() {
    this.#part.made?.leave();
  }

  start(request, hear) {
    const begun = Promise.resolve(this.#part.use((source) => source.start(request, hear)));
    begun.then((run) => run ?? hear([{ lost: MISSING }]));
    return Object.fromEntries(RUN.map((name) => [name, () => begun.then((run) => run?.[name]())]));
  }
}
