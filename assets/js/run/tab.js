// Values that this tab keeps over a reload, by name, as JSON in the browser's session storage. The storage may be
// full, or forbidden as in a notebook's frame: then nothing is kept, and the caller learns it. Another edition of the
// page may have kept another value under a name. A value without the name's shape is deleted, and a sentence says so.

import { having, isCount, isObject, isText, listOf, mapOf, orNothing } from "../trace/damage.js";

const PREFIX = "surelock:";

const isAnswer = orNothing((value) => isText(value) || Number.isFinite(value) || listOf(isCount)(value));
const ANSWERED = { question: isText, predicted: isAnswer, answer: isAnswer, run: orNothing(isText) };

/**
 * The shape of a value and its description, by name or by the part of a name before "-". Parts of runs are checked
 * later.
 */
const KEPT = {
  runs: [listOf(having({ id: isText, source: isText, size: isCount })), "the list of its runs"],
  run: [isObject, "a run"],
  shown: [having({ run: orNothing(isText), query: isText, form: orNothing(isText) }), "what was on show"],
  source: [isText, "where runs are computed"],
  lessons: [mapOf(having({ seen: listOf(isCount), answers: mapOf(having(ANSWERED)) })), "the lessons’ answers"],
};

/** The result of f(), or `otherwise` if the browser forbids it or has no room. */
function allowed(f, otherwise) {
  try {
    return f();
  } catch (error) {
    if (error instanceof DOMException) return otherwise;
    throw error;
  }
}

/** The value of a JSON text, undefined for any other text. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** The values of this tab. */
export class Tab {
  constructor(storage = allowed(() => globalThis.sessionStorage ?? null, null)) {
    Object.assign(this, { storage, dropped: new Set() });
  }

  get(name) {
    const text = allowed(() => this.storage?.getItem(PREFIX + name), null) ?? null;
    if (text === null) return null;
    const value = parsed(text);
    const [isRight] = KEPT[name.split("-")[0]];
    if (value !== undefined && isRight(value)) return value;
    this.drop(name);
    return null;
  }

  set(name, value) {
    const text = JSON.stringify(value);
    return allowed(() => {
      this.storage?.setItem(PREFIX + name, text);
      return this.storage !== null;
    }, false);
  }

  remove(name) {
    allowed(() => this.storage?.removeItem(PREFIX + name));
  }

  /** Deletes an unreadable value. With the list of runs, the runs are deleted, too, since nobody could find them. */
  drop(name) {
    const names = allowed(() => Object.keys(this.storage ?? {}), []).map((key) => key.slice(PREFIX.length));
    const lost = name === "runs" ? names.filter((kept) => kept.startsWith("run-")) : [];
    for (const kept of [name, ...lost]) this.remove(kept);
    this.dropped.add(KEPT[name.split("-")[0]][1]);
  }

  get problem() {
    const lost = [...this.dropped].join(", ");
    return lost && `This tab kept a run that this page cannot read; it was dropped: ${lost}.`;
  }
}
