// Reads a trace from elsewhere: from a file, a replay, or an earlier page of this tab. An unreadable trace is refused
// in one sentence.

import { TraceError } from "./damage.js";
import { checkDocument } from "./header.js";
import { FORMAT, Trace, VERSION } from "./trace.js";

/** The trace of a document. Throws TraceError. */
export function readTrace(document) {
  if (document?.format !== FORMAT) throw new TraceError("This file is not a SureLock trace.");
  if (document.version !== VERSION) {
    const version = String(document.version).slice(0, 20);
    throw new TraceError(`This trace has version ${version}; this page reads version ${VERSION}.`);
  }
  checkDocument(document);
  return Trace.parse(document);
}

/** The trace of an imported file's text. Throws TraceError. */
export function parseTrace(text) {
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    const cut = /^\s*\{/.test(text) && !/\}\s*$/.test(text);
    const why = cut ? "ends in the middle: it was cut short on its way" : "is not JSON, so it is not a trace";
    throw new TraceError(`This file ${why}.`);
  }
  return readTrace(document);
}
