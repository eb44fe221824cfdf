// Runs a text in JavaScript in isolation: in QuickJS, an interpreter compiled to WebAssembly. The text gets JSON and
// returns JSON. It can reach nothing else.

import { shouldInterruptAfterDeadline } from "quickjs-emscripten-core";

const MOST_BYTES = 32 * 2 ** 20;
const MOST_STACK = 2 ** 18;
const MOST_MS = 500;
const MOST_TEXT = 2 ** 16; // the most characters of an answer: the positions of the longest canvas take fewer
const MOST_THROWN = 200; // the most characters of a thrown message that are shown
const FILE = "rule.js";
/** Removes the functions by which an answer would not depend on the question alone, so that runs can be repeated. */
const REPEATS = "delete globalThis.Date; delete Math.random;";

/** The interpreter of one text. */
export class Interpreter {
  #runtime;
  #context;

  /**
   * Throws a RangeError, whose message is a clause, for a text that is no program.
   * quickjs: a module of quickjs-emscripten-core. Use it for one run alone, since a text may break it.
   */
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
   * The result of a function of the text for a value; undefined if the text has no such function. Value and result pass
   * through JSON. Throws a RangeError, whose message is a clause.
   */
  call(name, value) {
    const program = `typeof ${name} === "function" ? JSON.stringify(${name}(${JSON.stringify(value)})) ?? "null" : ""`;
    const answer = this.#run(program, "own.js");
    if (answer === null) return null;
    if (answer.length > MOST_TEXT) throw new RangeError(`${name} returned more than ${MOST_TEXT / 2 ** 10} kB`);
    try {
      return answer === "" ? undefined : JSON.parse(answer);
    } catch {
      return null; // the text has replaced the object JSON
    }
  }

  /** Frees the interpreter. If the text has broken it, its memory is freed with the module. */
  end() {
    const held = [this.#context, this.#runtime];
    [this.#context, this.#runtime] = [null, null];
    try {
      for (const part of held) part?.dispose();
    } catch {
      // QuickJS aborts if objects of the text are left, such as after a SyntaxError deep within brackets
    }
  }

  /**
   * The string to which a text evaluates, null for any other value. Only the text runs, so every error is its fault.
   */
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
      else problem = "it threw a promise"; // reading a promise frees it
    } catch (error) {
      problem = error instanceof RangeError ? "it is nested too deeply" : "it broke the interpreter that it ran in";
    }
    if (problem !== null) throw new RangeError(problem);
    return answer;
  }
}

/** A thrown value as a clause. */
function clauseOf(error) {
  const { name, message, stack } = error?.message === undefined ? { message: inJson(error) } : error;
  if (message === "interrupted") return `it took more than ${MOST_MS / 1000} s`;
  if (message === "out of memory") return `it took more than ${MOST_BYTES / 2 ** 20} MB`;
  const [, line] = new RegExp(`${FILE}:(\\d{1,6})\\b`).exec(typeof stack === "string" ? stack : "") ?? [];
  const parts = [name, message].map((part) => (typeof part === "string" ? part : inJson(part)).slice(0, MOST_THROWN));
  return parts.filter(Boolean).join(": ") + (line ? ` (line ${line})` : "");
}

/** A thrown value as JSON, "" if JSON cannot write it. */
function inJson(value) {
  return typeof value === "bigint" ? `${value}` : (JSON.stringify(value) ?? "");
}
