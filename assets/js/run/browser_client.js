// BrowserSource (browser_source.js), fetched when it is first asked for anything.

import { allowed, STORE } from "../decode/store.js";
import { MISSING, Part } from "../stage/part.js";
import { page } from "./state.js";

const NAME = "stories"; // the model that a browser decodes
const RUN = ["leave", "pause", "resume", "step", "stop"];

export class BrowserClient {
  #part = new Part(
    async () => (await import("./browser_source.js")).decoderOf(NAME),
    (source) => source,
    () => null,
  );
  #ask =
    (name) =>
    (...asked) =>
      this.#part.use((source) => source[name](...asked));
  document = this.#ask("document");
  top = this.#ask("top");
  token = this.#ask("token");
  attended = this.#ask("attended");
  inside = this.#ask("inside");

  /** {foreign, rare, tooLong} of a prompt, as the page's state has them, as far as that is known: nothing is fetched for it. */
  async measured(text) {
    const known = (page.now.decoder && (await this.#ask("measured")(text))) || {};
    const { foreign = false, rare = false, tooLong = "" } = known;
    return { foreign, rare, tooLong };
  }

  decodes(model) {
    return model === NAME;
  }

  /** Has the decoder ready before a run is asked for, where the browser has kept its files from an earlier one. */
  async prepare() {
    if (await allowed(() => globalThis.caches?.has(STORE))) await this.#part.use((source) => source.prepare());
  }

  start(request, hear) {
    const begun = this.#part.use((source) => source.start(request, hear));
    begun.then((run) => run ?? hear([{ lost: MISSING }]));
    return Object.fromEntries(RUN.map((name) => [name, () => begun.then((run) => run?.[name]())]));
  }
}
