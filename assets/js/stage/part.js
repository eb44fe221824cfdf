// A part of the page that is loaded when it is needed, so that the race can begin without it.

import { say } from "../run/state.js";

export const MISSING =
  "The connection was lost, so a part of this page is missing. Press again once it is back: what was computed is kept, and a run in this browser goes on.";

/** A part that is loaded when it is needed. */
export class Part {
  made = null; // the part, null before it is loaded
  #coming = null;

  /** load(): a promise of the module. make(module): makes the part, once. missing(): called if it cannot be loaded. */
  constructor(load, make, missing) {
    Object.assign(this, { load, make, missing });
  }

  /** Calls use(part), at once or when the part is loaded. Returns the result, or that of missing(). */
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

/** Null for a TypeError, which means that a module could not be fetched. Throws any other error. */
function fetchFailed(error) {
  if (!(error instanceof TypeError)) throw error;
  return null;
}

/**
 * The Parts of a stage by name. When a part is made, it becomes a property of the stage with the same name.
 * loads: by name, see deferred_parts.js. options: the options of the stage.
 */
export function partsOf(stage, loads, options) {
  const missing = () => say(MISSING, "error");
  const part = ([name, load]) => {
    const join = (Joining) => Object.assign(stage, { [name]: new Joining(stage, options) })[name];
    return [name, new Part(load, join, missing)];
  };
  return Object.fromEntries(Object.entries(loads).map(part));
}
