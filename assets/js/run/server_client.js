// ServerSource (server_source.js), fetched when it is first asked for anything.

import { Client } from "./client.js";
import { edition } from "./files.js";

export class ServerClient extends Client {
  /** root: the address of the server's routes. */
  constructor(root) {
    const opened = edition().catch(() => null); // of the page, as it was opened
    super(
      async () => (await import("./server_source.js")).ServerSource,
      (ServerSource) => new ServerSource(root, opened),
    );
  }

  state(model) {
    return this.ask("state", model);
  }

  /** The page is left. */
  leave() {
    this.part.made?.leave();
  }
}
