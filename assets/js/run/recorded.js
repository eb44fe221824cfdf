// Reads the recorded runs. The browser fetches the first one as soon as it has read the page's head (see page_head).

import { TraceError } from "../trace/damage.js";
import { Trace } from "../trace/trace.js";
import { fileOf } from "./files.js";

const read = new Map();

/** A promise of the trace of a run in assets/runs/, or of null if it cannot be read. */
export function readRun(name) {
  if (!read.has(name)) read.set(name, fetchRun(name));
  return read.get(name);
}

async function fetchRun(name) {
  try {
    const answer = await fileOf(`runs/${name}.json`);
    const trace = answer.ok ? Trace.parse(await answer.json()) : null;
    for (const lane of trace?.lanes ?? []) lane.recorded = true;
    return trace;
  } catch (error) {
    if (error instanceof TraceError || error instanceof SyntaxError || error instanceof TypeError) return null; // damaged, or no network
    throw error;
  }
}

/** A promise of the first recorded run's trace. */
export const recorded = readRun("stories");
