// A part of the page that comes when it is needed, see stage/part.js. What is there before is not in it again.

import "./core.js";
import { Drawer } from "../cause/drawer.js";

/** The drawer joins a stage. */
export function join(stage, { fetchTop, fetchAttended, whatIf }) {
  const drawer = new Drawer({
    fetchTop,
    fetchAttended,
    whatIf,
    onPin: (cell) => stage.pin(cell),
    player: stage.timeline.node,
    onPlace: (lane) => standBeside(stage, lane),
    onLayout: () => stage.resize(),
    onChange: () => stage.redraw(),
    onClose: () => stage.forget(),
  });
  stage.floor.append(drawer.node);
  if (!stage.trace) return drawer;
  drawer.load(stage.trace, stage.nodeOf);
  drawer.inspector.drawPins();
  return drawer;
}

/** Leaves a column free right of a lane's, for the drawer; in the last row of several, from there on. */
function standBeside(stage, lane) {
  const { sides, floor } = stage;
  const columns = sides.length < 4 ? sides.length : 2; // as in grids.css
  const at = sides.findIndex((side) => side.lane === lane);
  const hole = at < 0 ? columns : (at % columns) + 1;
  const tracks = Array.from({ length: columns + 1 }, (_, i) => (i === hole ? "var(--sl-drawer)" : "minmax(0, 1fr)"));
  const set = (node, name, value) => node.style.setProperty(`--sl-${name}`, value);
  sides.forEach(({ node }, i) => {
    set(node, "column", (i % columns) + 1 + (i % columns >= hole));
  });
  set(floor, "tracks", tracks.join(" "));
  set(floor, "hole", hole + 1);
  set(floor, "lower", "0px");
  if (at >= columns) set(floor, "lower", `${sides[at].node.offsetTop - sides[0].node.offsetTop}px`);
}
