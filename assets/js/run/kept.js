// Keeps the latest runs of this tab over a reload, and which of them was on show with which address.

import { MISSING, Part } from "../stage/part.js";
import { TraceError } from "../trace/damage.js";
import { page } from "./state.js";
import { Tab } from "./tab.js";

const MOST = 4_000_000; // the most characters of all runs; browsers keep about five million for a page

/** The kept runs. */
export class Kept {
  #reading = new Part(
    () => import("./reading.js"),
    ({ readTrace }) => readTrace,
    () => this.onProblem(MISSING),
  );

  /** onProblem(sentence): called once if nothing can be kept. */
  constructor({ onProblem, tab = new Tab() }) {
    Object.assign(this, { onProblem, tab });
    page.follow(["runs"], ({ runs }) => {
      const last = runs.at(-1);
      if (last && !last.kept) this.keepTrace(last.trace, last.source);
    });
  }

  /** [{id, source, document}, ...], the oldest first. */
  runs() {
    return (this.tab.get("runs") ?? []).flatMap(({ id, source }) => {
      const document = this.tab.get(`run-${id}`);
      return document ? [{ id, source, document }] : [];
    });
  }

  /** A promise of the traces of the kept runs; the key of a trace is the run's id. Unreadable runs are deleted. */
  async traces() {
    const runs = this.runs();
    const readTrace = runs.length ? await this.#reading.use((read) => read) : null;
    if (!readTrace) return [];
    return runs.flatMap(({ id, source, document }) => {
      try {
        const more = { key: id, interrupted: source === "interrupted" };
        return [{ source, trace: Object.assign(readTrace(document), more) }];
      } catch (error) {
        if (!(error instanceof TraceError)) throw error;
        this.tab.drop(`run-${id}`);
        return [];
      }
    });
  }

  keepTrace(trace, source) {
    trace.key ??= `${Date.now()}-${Math.random().toString(36).slice(2, 8)}`;
    this.keep(trace.key, source, trace.toDocument());
  }

  /** Keeps an unfinished run when the page is left. The address cannot change any more then. live: a Running. */
  leave({ run, branching }) {
    const trace = page.now.phase === "idle" ? branching?.cut && branching.before : run.trace;
    if (!trace?.count) return;
    this.keepTrace(trace, "interrupted");
    this.shown = { ...this.shown, run: trace.key, query: location.search.slice(1) };
  }

  /** Keeps a run under its id. Older runs are deleted if there is no room. */
  keep(id, source, document) {
    const size = JSON.stringify(document).length;
    if (size > MOST) return this.onProblem("This run is too large to be kept for a reload: export it to keep it.");
    let index = (this.tab.get("runs") ?? []).filter((entry) => entry.id !== id);
    const drop = () => {
      const [oldest, ...rest] = index;
      this.tab.remove(`run-${oldest.id}`);
      index = rest;
    };
    while (index.length && size + index.reduce((sum, entry) => sum + entry.size, 0) > MOST) drop();
    while (!this.tab.set(`run-${id}`, document)) {
      if (!index.length) {
        this.tab.set("runs", index);
        if (!this.hasWarned) this.onProblem("This browser keeps no runs for a reload: export what you want to keep.");
        this.hasWarned = true;
        return;
      }
      drop();
    }
    this.tab.set("runs", [...index, { id, source, size }]);
  }

  /**
   * {run, query, form}: the run on show, the page's query, and the form's settings if the query has no room for them.
   */
  get shown() {
    return this.tab.get("shown") ?? {};
  }
  set shown(value) {
    this.tab.set("shown", value);
  }
}
