// Keeps the runs of this visit, the latest last. below/runs.js shows them as a table.

import { page } from "./state.js";

const MOST_RUNS = 12;

/** Adds a run to the runs of the visit. source: its origin in a word. kept: whether the tab keeps it over a reload. */
export function keepRun(trace, source, { kept = false } = {}) {
  const { runs } = page.now;
  const number = (runs.at(-1)?.number ?? 0) + 1;
  page.set({ runs: [...runs, { trace, source, number, kept }].slice(-MOST_RUNS) });
}
