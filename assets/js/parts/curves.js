// A part of the page that comes when it is needed, see stage/part.js. What is there before is not in it again.

import "./core.js";
import { Curves, loadPlotly } from "../cause/curves.js";
import { page } from "../run/state.js";
import { subject } from "../stage/narrator.js";

/** The curves join a stage. */
export function join(stage, { plotly }) {
  const curves = new Curves();
  stage.lower.append(curves.node);
  curves.theme(stage.colours);
  if (stage.trace) {
    curves.load(stage.trace);
    curves.moveTo(stage.trace.reached(subject(stage.trace), page.now.step));
  }
  curves.show(stage.only);
  if (plotly) loadPlotly(plotly).then((found) => curves.use(found));
  else curves.use(window.Plotly ?? null);
  return curves;
}
