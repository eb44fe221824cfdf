// `node tests/js/answers-of.js`: reads {trace: path, asked} from its input and writes what the page answers.

import { readFileSync } from "node:fs";
import { answer } from "../../assets/js/lessons/answers.js";
import { Trace } from "../../assets/js/trace/trace.js";

const { trace: path, asked } = JSON.parse(readFileSync(0, "utf-8"));
const trace = Trace.parse(JSON.parse(readFileSync(path, "utf-8")));
process.stdout.write(JSON.stringify(asked.map((each) => answer(trace, each))));
