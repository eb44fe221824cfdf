// BrowserSource (browser_source.js), fetched when it is first asked for anything.

import { allowed, STORE } from "../decode/store.js";
import { Client } from "./client.js";
import { page } from "./state.js";

const NAME = "stories"; // the model that a browser decodes

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

  /** {foreign, rare, tooLong} of a prompt, as the page's state has them, as far as they are known. Nothing is fetched. */
  async measured(text) {
    const known = (page.now.decoder && (await this.ask("measured", text))) || {};
    const { foreign = false, rare = false, tooLong = "" } = known;
    return { foreign, rare, tooLong };
  }

  decodes(model) {
    return model === NAME;
  }

  /** Has the decoder ready before a run is asked for, where the browser has kept its files from an earlier one. */
  async prepare() {
    if (await allowed(() => globalThis.caches?.has(STORE))) await this.ask("prepare");
  }
}
