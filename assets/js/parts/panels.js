// A part of the page that comes when it is needed, see stage/part.js. What is there before is not in it again.

import "./core.js";
import { Panels } from "../panels/panels.js";
import { Trace } from "../trace/trace.js";

/** What stands beneath the race joins a stage. */
export function join(stage, { source, onUse }) {
  const panels = new Panels({
    root: stage.root,
    source,
    visit: stage.runs,
    trace: () => stage.trace,
    view: () => stage.view,
    onShow: (trace) => stage.reveal(trace),
    onCompare: (sides) => stage.reveal(Trace.of(sides), "Compared:"),
    onUse,
    onImport: (trace) => opened(stage, trace),
  });
  for (const [name, node] of Object.entries(panels.nodes))
    stage.root.querySelector(`[data-panel=${name}]`).append(node);
  stage.quick.append(panels.share.quick);
  if (stage.trace) panels.load(stage.trace);
  return panels;
}

/** A trace from a file joins the table and is shown. */
function opened(stage, trace) {
  stage.add(trace, "imported");
  stage.show(trace, { label: "Imported run:" });
  stage.say(trace.view ? stage.look(trace.view) : "");
  stage.onView();
}
