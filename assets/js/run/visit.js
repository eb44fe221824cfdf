// The runs of this visit, the latest last. The table of them is in below/runs.js.

import { page } from "./state.js";

const MOST_RUNS = 12;

/** Keeps a run among those of the visit. source: where it comes from, in a word. kept: whether a reload finds it anyway. */
export function keepRun(trace, source, { kept = false } = {}) {
  const { runs } = page.now;
  const number = (runs.at(-1)?.number ?? 0) + 1;
  page.set({ runs: [...runs, { trace, source, number, kept }].slice(-MOST_RUNS) });
}
