// Runs a text in JavaScript apart from everything: in QuickJS, an interpreter that is compiled to WebAssembly. The text
// is handed JSON and hands JSON back; there is nothing else that it could reach.

import { shouldInterruptAfterDeadline } from "quickjs-emscripten-core";

const MOST_BYTES = 32 * 2 ** 20;
const MOST_STACK = 2 ** 18;
const MOST_MS = 500;
const MOST_TEXT = 2 ** 16; // characters of an answer: the positions of the longest canvas take less
const MOST_THROWN = 200; // of what it threw
const FILE = "rule.js";
/** Without these, an answer depends on the question alone, so that a run repeats. */
const REPEATS = "delete globalThis.Date; delete Math.random;";

export class Interpreter {
  #runtime;
  #context;

  /** quickjs: a module of quickjs-emscripten-core. A text may break it, so that it is for one run. Throws a RangeError, a
   * clause, for a text that is no program. */
  constructor(quickjs, text) {
    this.#runtime = quickjs.newRuntime({ memoryLimitBytes: MOST_BYTES, maxStackSizeBytes: MOST_STACK });
    this.#context = this.#runtime.newContext();
    try {
      this.#run(REPEATS, "own.js");
      this.#run(text, FILE);
    } catch (error) {
      this.end();
      throw error;
    }
  }

  /**
   * What a function of the text returns for a value, as JSON has both; undefined where there is no such function.
   * Throws a RangeError, a clause.
   */
  call(name, value) {
    const program = `typeof ${name} === "function" ? JSON.stringify(${name}(${JSON.stringify(value)})) ?? "null" : ""`;
    const answer = this.#run(program, "own.js");
    if (answer === null) return null;
    if (answer.length > MOST_TEXT) throw new RangeError(`${name} returned more than ${MOST_TEXT / 2 ** 10} kB`);
    try {
      return answer === "" ? undefined : JSON.parse(answer);
    } catch {
      return null; // the text has put another JSON in its place
    }
  }

  /** Gives back what it holds; what the text has broken is given back with the module. */
  end() {
    const held = [this.#context, this.#runtime];
    [this.#context, this.#runtime] = [null, null];
    try {
      for (const part of held) part?.dispose();
    } catch {
      // QuickJS ends where something of the text is left, as after a SyntaxError deep within brackets
    }
  }

  /** The string that a text comes to, null for any other value. Nothing else runs, so a throw is the text's fault. */
  #run(text, file) {
    let answer = null;
    let problem = null;
    try {
      this.#runtime.setInterruptHandler(shouldInterruptAfterDeadline(Date.now() + MOST_MS));
      const { value, error } = this.#context.evalCode(text, file);
      const result = value ?? error;
      if (error) problem = clauseOf(this.#context.dump(error));
      else if (this.#context.typeof(value) === "string") answer = this.#context.getString(value);
      if (result.alive) result.dispose();
      else problem = "it threw a promise"; // which reading disposes of
    } catch (error) {
      problem = error instanceof RangeError ? "it is nested too deeply" : "it broke the interpreter that it ran in";
    }
    if (problem !== null) throw new RangeError(problem);
    return answer;
  }
}

/** What a text threw, in a clause. */
function clauseOf(error) {
  const { name, message, stack } = error?.message === undefined ? { message: inJson(error) } : error;
  if (message === "interrupted") return `it took more than ${MOST_MS / 1000} s`;
  if (message === "out of memory") return `it took more than ${MOST_BYTES / 2 ** 20} MB`;
  const [, line] = new RegExp(`${FILE}:(\\d{1,6})\\b`).exec(typeof stack === "string" ? stack : "") ?? [];
  const parts = [name, message].map((part) => (typeof part === "string" ? part : inJson(part)).slice(0, MOST_THROWN));
  return parts.filter(Boolean).join(": ") + (line ? ` (line ${line})` : "");
}

/** A thrown value as JSON, "" where it has none. */
function inJson(value) {
  return typeof value === "bigint" ? `${value}` : (JSON.stringify(value) ?? "");
}
