// A source of runs (server_source.js or browser_source.js) whose module is fetched when it is first asked for anything.

import { MISSING, Part } from "../stage/part.js";

const RUN = ["leave", "pause", "resume", "step", "stop"]; // what can be asked of a run that was started

export class Client {
  /** load(): a promise of the module; make(module): the source, once. */
  constructor(load, make) {
    this.part = new Part(load, make, () => null);
  }

  /** What a method of the source answers, null where its module does not come. */
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

  /** The run's handle at once: what is asked of it waits until the source has started it. */
  start(request, hear) {
    const begun = this.ask("start", request, hear);
    begun.then((run) => run ?? hear([{ lost: MISSING }]));
    return Object.fromEntries(RUN.map((name) => [name, () => begun.then((run) => run?.[name]())]));
  }
}
