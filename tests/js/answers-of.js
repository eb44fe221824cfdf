// `node tests/js/answers-of.js`: reads [{trace: path, asked, claim, needs}, ...] from its input and writes for each what the page
// answers: {misfit, answers, holds}. The test of the lessons holds it against Python.

import { readFileSync } from "node:fs";
import { answer, holds, misfit } from "../../assets/js/lessons/answers.js";
import { Trace } from "../../assets/js/trace/trace.js";

const found = JSON.parse(readFileSync(0, "utf-8")).map(({ trace: path, asked, claim, needs }) => {
  const trace = Trace.parse(JSON.parse(readFileSync(path, "utf-8")));
  return {
    misfit: misfit(trace, { needs }),
    answers: asked.map((each) => answer(trace, each)),
    holds: holds(trace, claim),
  };
});
process.stdout.write(JSON.stringify(found));
