// What a stage draws at a step of the cursor, and how much room its grids have.

import { reducedMotion } from "../dom.js";
import { page } from "../run/state.js";

const GAP = 8; // pixels between the parts of the first screen

/** How tall a grid may be so that all of them are in the first screen, in CSS pixels. */
export function tallest(stage) {
  const shown = stage.sides.filter(({ node }) => node.offsetHeight); // a lesson hides lanes
  const rows = new Set(shown.map(({ node }) => node.offsetTop)).size;
  return room(stage) / rows - Math.max(...shown.map((side) => side.around)) - GAP;
}

/** How much of the first screen all grids may take; beneath a lesson's card at least half of one. */
function room(stage) {
  const { open = false } = stage.lessons ?? {};
  if (stage.presenter.on) return open ? stage.grids.clientHeight : Infinity;
  const { top } = stage.grids.getBoundingClientRect();
  const touches = stage.touching?.node.offsetHeight ?? 0;
  const left = innerHeight - (top + scrollY) - stage.timeline.node.offsetHeight - touches - 4 * GAP;
  return open ? Math.max(left, innerHeight / 2) : left;
}

/** Everything at one step, or while the cursor moves what is in sight. Cheap: a canvas a lane and a few text nodes. */
export function draw(stage, step, moving = false) {
  const { trace } = stage;
  if (!trace || !stage.sides.length) return;
  const { sight } = stage;
  sight.begin(moving);
  const { lane: last } = stage.sides.at(-1);
  const there = stage.sides.filter(({ grid }) => grid.box); // a lesson hides what it does not speak of
  if (there.length) stage.long.follow(step, last.at(trace.race.reached(last, step))?.unmasked ?? [], there[0].grid);
  const seen = there.filter(({ box }) => sight.has(box));
  drawGrids(stage, seen, step);
  const over = trace.lanes.every((lane) => lane.endsAt(trace.race.reached(lane, step)));
  stage.root.dataset.over = over;
  for (const side of stage.sides) {
    side.draw(trace, step, sight.reads(side.details));
    side.part(trace, over && trace.lanes.length > 1, step);
  }
  if (sight.reads(stage.teller.node)) stage.tell(step);
  stage.numbers.draw(trace, step);
  if (sight.reads(stage.gauges.node)) stage.gauges.draw(trace, step);
  stage.curves?.moveTo(trace.race.reached(trace.subject, step));
  stage.drawer?.draw(step);
  stage.cells.writeTip(step);
  if (!moving) stage.cells.speak(step);
  stage.presenter.follow((lane) => trace.race.reached(lane, step));
  stage.root.dataset.step = step;
  stage.root.dataset.count = trace.count;
  if (!moving || sight.tells) for (const side of stage.sides) side.name(trace, step);
  if (step >= 0 && !stage.timeline.playing) stage.announceLater();
}

/** The grids alone. */
export function drawGrids(stage, sides, step) {
  if (!sides.length) return;
  const { trace } = stage;
  const lit = !((stage.timeline.playing || stage.timeline.follow) && reducedMotion());
  const base = stage.sides.find(({ lane }) => lane === trace.reference);
  for (const side of new Set([base, ...sides])) side.label(trace, step);
  for (const side of sides) {
    const t = trace.race.reached(side.lane, step);
    side.drawGrid(trace, {
      step: t,
      states: stage.drawer?.epsilon.states(side.lane, t),
      values: stage.colouring.values(side.lane, t),
      block: stage.lessons?.open && !stage.hides("blocks") ? (side.lane.decoder.settings.block_length ?? 0) : 0,
      seen: stage.long.seen(side.grid),
      top: stage.long.windowed ? stage.long.top : 0,
      other: side === base ? null : base.labels.tokens,
      fresh: lit,
      hover: page.now.hover,
      pins: page.now.pins,
      outlined: stage.touching?.levels(side.lane, t),
    });
  }
}
