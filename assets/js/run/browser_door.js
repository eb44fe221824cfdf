// Runs that this browser computes: the same door as BrowserSource's (browser_source.js), which comes when it is first asked
// for anything.

import { allowed, STORE } from "../decode/store.js";
import { MISSING, Part } from "../stage/part.js";

const NAME = "stories"; // the model that a browser decodes

export class BrowserDoor {
  #part = new Part(
    async () => (await import("../parts/browser.js")).decoderOf(NAME),
    (made) => made,
    () => null,
  );

  decodes(model) {
    return model === NAME;
  }

  get ready() {
    return this.#part.made?.source.ready ?? false;
  }

  /** Has the decoder ready before a run is asked for, where the browser has kept its files from an earlier one. */
  async prepare() {
    if (await allowed(() => globalThis.caches?.has(STORE))) await this.#part.use(({ source }) => source.prepare());
  }

  start(request, hear) {
    const begun = this.#part.use(({ source }) => source.start(request, hear));
    begun.then((run) => run ?? hear([{ lost: MISSING }]));
    const later = (name) => () => begun.then((run) => run?.[name]());
    return {
      leave: later("leave"),
      pause: later("pause"),
      resume: later("resume"),
      step: later("step"),
      stop: later("stop"),
    };
  }

  #ask(name, ...asked) {
    return this.#part.use(({ source }) => source[name](...asked));
  }

  document(run) {
    return this.#ask("document", run);
  }

  top(lane, cell, step) {
    return this.#ask("top", lane, cell, step);
  }

  token(text) {
    return this.#ask("token", text);
  }

  attended(trace, lane, cell, step) {
    return this.#ask("attended", trace, lane, cell, step);
  }

  /** The decoder as the script elements of a page that holds it, see `decoderInside`; null where it does not come. */
  inside(model, presets) {
    return this.#part.use((made) => made.inside(model, presets));
  }
}
