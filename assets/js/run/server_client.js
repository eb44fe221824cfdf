// The client of ServerSource. It loads server_source.js at the first call.

import { Client } from "./client.js";
import { edition } from "./files.js";

/** The client. */
export class ServerClient extends Client {
  /** root: the address of the server's routes. */
  constructor(root) {
    const opened = edition().catch(() => null); // the edition of the page when it was opened
    super(
      async () => (await import("./server_source.js")).ServerSource,
      (ServerSource) => new ServerSource(root, opened),
    );
  }

  state(model) {
    return this.ask("state", model);
  }

  /** Called when the page is left. */
  leave() {
    this.part.made?.leave();
  }
}
