// The exported page. It shows one trace, which is part of its document. If the document contains a decoder, too, words
// can be touched.

import { LOADS } from "./deferred_parts.js";
import { reducedMotion } from "./dom.js";
import { readAddress } from "./run/address.js";
import { asking } from "./run/asking.js";
import { decoderOf } from "./run/browser_source.js";
import { decoderHere } from "./run/decoder_files.js";
import { embed, embeddedLanes } from "./run/embed.js";
import { Running } from "./run/running.js";
import { Starting } from "./run/starting.js";
import { page, say } from "./run/state.js";
import { keepRun } from "./run/visit.js";
import { Stage } from "./stage/stage.js";
import { followScheme } from "./stage/theme.js";
import { TraceError } from "./trace/damage.js";
import { readTrace } from "./trace/reading.js";

/** Makes the stage, and connects it to the decoder if the page has one. */
async function begin(root) {
  const decoder = await decoderHere();
  if (!decoder) return { stage: new Stage(root, LOADS) };
  const { model, presets } = decoder;
  page.set({ sources: ["browser"], source: "browser", presets });
  const source = await decoderOf(model);
  const parts = { source };
  const race = (trace, lanes) => parts.starting.raceLike(trace, lanes);
  const document = (run) => source.document(run);
  parts.stage = new Stage(root, LOADS, { ...asking(parts), source: { document }, lessons: { race } });
  parts.live = new Running({ stage: parts.stage, source });
  parts.starting = new Starting(parts);
  return parts;
}

const parts = await begin(document.getElementById("sl-stage"));
const { stage } = parts;
embed(stage.root);
stage.numbers.counts.append(stage.lessonsButton); // this page has no button Run, beside which it would be
followScheme();
window.surelock = { ...parts, page };

try {
  const trace = readTrace(JSON.parse(document.getElementById("sl-trace").textContent));
  keepRun(trace, "this file");
  const { view, problem } = readAddress(location.hash.slice(1));
  const asked = Object.keys(view).length ? view : trace.view;
  stage.show(embeddedLanes(trace), { play: !asked && !reducedMotion() });
  say([problem, asked ? stage.look(asked, asked === view ? "the link" : "the file") : ""].filter(Boolean).join(" "));
  stage.arrive(location.search || location.hash.slice(1));
} catch (error) {
  if (!(error instanceof TraceError || error instanceof SyntaxError)) throw error;
  say(error instanceof TraceError ? error.message : "This page holds no readable trace.", "error");
}
