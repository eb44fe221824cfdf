// The parts of the stage that come when they are needed: each joins it by itself.

import { MISSING, Part } from "./part.js";

/** {curves, drawer, lessons, panels}: each a Part of a stage. options: what they need of the stage's. */
export function partsOf(stage, options) {
  const missing = () => stage.say(MISSING, "error");
  const part = (load) => new Part(load, ({ join }) => join(stage, options), missing);
  return {
    curves: part(() => import("../parts/curves.js")),
    drawer: part(() => import("../parts/drawer.js")),
    lessons: part(() => import("../parts/lessons.js")),
    panels: part(() => import("../parts/panels.js")),
  };
}
