// The client of BrowserSource. It loads browser_source.js at the first call.

import { allowed, STORE } from "../decode/store.js";
import { Client } from "./client.js";
import { page } from "./state.js";

const NAME = "stories"; // the model that a browser decodes

/** The client. */
export class BrowserClient extends Client {
  constructor() {
    super(
      async () => (await import("./browser_source.js")).decoderOf(NAME),
      (source) => source,
    );
  }

  inside(model, presets) {
    return this.ask("inside", model, presets);
  }

  /** A promise of the warnings {foreign, rare, tooLong} of a prompt, as far as they are known. Nothing is fetched. */
  async measured(text) {
    const known = (page.now.decoder && (await this.ask("measured", text))) || {};
    const { foreign = false, rare = false, tooLong = "" } = known;
    return { foreign, rare, tooLong };
  }

  decodes(model) {
    return model === NAME;
  }

  /** Loads the decoder before a run is requested, if the browser has kept the decoder's files. */
  async prepare() {
    if (await allowed(() => globalThis.caches?.has(STORE))) await this.ask("prepare");
  }
}
