// The exported page: one trace, read from the document itself.

import { reducedMotion } from "./dom.js";
import { readAddress } from "./run/address.js";
import { embed, embeddedLanes } from "./run/embed.js";
import { Stage } from "./stage/stage.js";
import { followScheme } from "./stage/theme.js";
import { Trace, TraceError } from "./trace/trace.js";

const stage = new Stage(document.getElementById("sl-stage"));
embed(stage.root);
stage.numbers.node.parentNode.append(stage.lessons.button); // the page has it beside Run
followScheme();
window.surelock = { stage };

try {
  const trace = Trace.parse(JSON.parse(document.getElementById("sl-trace").textContent));
  stage.runs.add(trace, "this file");
  const { view, problem } = readAddress(location.hash.slice(1));
  const asked = Object.keys(view).length ? view : trace.view;
  stage.show(embeddedLanes(trace), { play: !asked && !reducedMotion() });
  stage.say([problem, asked ? stage.look(asked) : ""].filter(Boolean).join(" "));
  stage.lessons.arrive(location.search || location.hash.slice(1));
} catch (error) {
  if (!(error instanceof TraceError || error instanceof SyntaxError)) throw error;
  stage.say(error instanceof TraceError ? error.message : "This page holds no readable trace.", "error");
}
