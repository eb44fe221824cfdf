// `node tests/js/answers-of.js`: reads {run: a trace document, asked} from its input and writes what the page answers.

import { readFileSync } from "node:fs";
import { answer } from "../../assets/js/lessons/grading.js";
import { Trace } from "../../assets/js/trace/trace.js";

const { run, asked } = JSON.parse(readFileSync(0, "utf-8"));
const trace = Trace.parse(run);
process.stdout.write(JSON.stringify(asked.map((each) => answer(trace, each))));
