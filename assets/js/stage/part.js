// A part of the page that comes when it is needed: what the race does not need is not fetched before it plays.

import { say } from "../run/state.js";

export const MISSING =
  "The connection was lost, so a part of this page is missing. Press again once it is back: what was computed is kept, and a run in this browser goes on.";

export class Part {
  made = null; // once it has come
  #coming = null;

  /** load(): a promise of its module; make(module): the part, once; missing(): it did not come. */
  constructor(load, make, missing) {
    Object.assign(this, { load, make, missing });
  }

  /** Calls use(part): at once where it is there, else once it has come. A press that waits for it is not lost. */
  async use(use = () => {}) {
    if (!this.made && !(await this.#come())) return this.missing();
    return use(this.made);
  }

  async #come() {
    this.#coming ??= this.load();
    const module = await this.#coming.catch(fetchFailed);
    if (!module) this.#coming = null;
    else this.made ??= this.make(module);
    return Boolean(module);
  }
}

/** Null for a TypeError, with which a module's fetch fails; throws any other error. */
function fetchFailed(error) {
  if (!(error instanceof TypeError)) throw error;
  return null;
}

/**
 * What joins a stage when it is needed: Parts, by name. The stage has what they make under the same names.
 * loads: by name, see deferred_parts.js. options: the stage's.
 */
export function partsOf(stage, loads, options) {
  const missing = () => say(MISSING, "error");
  const part = ([name, load]) => {
    const join = (Joining) => Object.assign(stage, { [name]: new Joining(stage, options) })[name];
    return [name, new Part(load, join, missing)];
  };
  return Object.fromEntries(Object.entries(loads).map(part));
}
