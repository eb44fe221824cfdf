// What the tab keeps of its runs, so that a reload, or the way back, finds them.

import { TraceError, traceOf } from "../trace/trace.js";
import { page } from "./state.js";

export class Keeping {
  /** kept: see Kept. live: see Running. */
  constructor({ stage, kept, live }) {
    Object.assign(this, { stage, kept, live });
    addEventListener("pagehide", () => this.#leave());
  }

  /** The runs of this tab from before a reload, by their keys; they join the table. */
  found() {
    const found = new Map();
    for (const { id, source, document } of this.kept.runs())
      try {
        const trace = Object.assign(traceOf(document), { key: id, interrupted: source === "interrupted" });
        this.stage.runs.add(trace, source);
        found.set(id, trace);
      } catch (error) {
        if (!(error instanceof TraceError)) throw error;
        this.kept.drop(id);
      }
    return found;
  }

  keep(trace, source) {
    trace.key ??= `${Date.now()}-${Math.random().toString(36).slice(2, 8)}`;
    this.kept.keep(trace.key, source, trace.toDocument());
  }

  /** The page is left, perhaps in the middle of a run: its address cannot change any more. */
  #leave() {
    const { run, branching } = this.live;
    const trace = page.now.phase === "idle" ? branching?.cut && branching.before : run.trace;
    if (!trace?.count) return;
    this.keep(trace, "interrupted");
    this.kept.shown = { ...this.kept.shown, run: trace.key, query: location.search.slice(1) };
  }
}
