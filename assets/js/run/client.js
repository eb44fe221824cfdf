// The client of a source of runs (server_source.js or browser_source.js). It loads the source's module at the first
// call.

import { MISSING, Part } from "../stage/part.js";

const RUN = ["leave", "pause", "resume", "step", "stop"]; // the methods of a started run

/** The client. */
export class Client {
  /** load(): a promise of the module. make(module): makes the source, once. */
  constructor(load, make) {
    this.part = new Part(load, make, () => null);
  }

  /** A promise of the result of a method of the source, null if the module cannot be loaded. */
  ask(name, ...values) {
    return this.part.use((source) => source[name](...values));
  }

  document(run) {
    return this.ask("document", run);
  }

  top(lane, cell, step) {
    return this.ask("top", lane, cell, step);
  }

  token(text, model) {
    return this.ask("token", text, model);
  }

  attended(trace, lane, cell, step) {
    return this.ask("attended", trace, lane, cell, step);
  }

  /** The handle of a run, at once. Calls of its methods wait until the source has started the run. */
  start(request, hear) {
    const begun = this.ask("start", request, hear);
    begun.then((run) => run ?? hear([{ lost: MISSING }]));
    return Object.fromEntries(RUN.map((name) => [name, () => begun.then((run) => run?.[name]())]));
  }
}
