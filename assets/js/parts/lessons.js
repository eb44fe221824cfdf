// A part of the page that comes when it is needed, see stage/part.js. What is there before is not in it again.

import "./core.js";
import { Lessons } from "../lessons/lessons.js";

/** The lessons join a stage. */
export function join(stage, { lessons: options }) {
  const lessons = new Lessons({ stage, ...options });
  stage.teller.node.after(lessons.card);
  stage.root.append(lessons.node);
  return lessons;
}
