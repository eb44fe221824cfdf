// The exported page: one trace, read from the document itself.

import { embed, embedded } from "./embed.js";
import { Stage } from "./stage.js";
import { Trace, TraceError } from "./trace.js";

const stage = new Stage(document.getElementById("sl-stage"), { importing: true });
embed(stage.root);
const query = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.body.classList.toggle("dark", query.matches);
query.addEventListener("change", follow);
follow();
window.surelock = { stage };

try {
  const trace = Trace.parse(JSON.parse(document.getElementById("sl-trace").textContent));
  stage.runs.add(trace, "this file");
  const { trace: shown, ...how } = embedded(trace);
  stage.show(shown, how);
} catch (error) {
  if (!(error instanceof TraceError || error instanceof SyntaxError)) throw error;
  stage.say(error instanceof TraceError ? error.message : "This page holds no readable trace.", "error");
}
