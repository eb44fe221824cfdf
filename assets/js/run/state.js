// What the page is at, in one place: who shows a part of it follows that part.

class State {
  #followers = new Map();

  constructor(now) {
    this.now = now;
  }

  set(changes) {
    const changed = Object.keys(changes).filter((name) => !Object.is(changes[name], this.now[name]));
    if (!changed.length) return;
    this.now = { ...this.now, ...changes };
    for (const [follower, names] of [...this.#followers])
      if (names.some((name) => changed.includes(name))) follower(this.now);
  }

  /** f(everything) at once, and whenever one of the named parts has changed; what it returns ends that. */
  follow(names, f) {
    const follower = (now) => f(now);
    this.#followers.set(follower, names);
    follower(this.now);
    return () => this.#followers.delete(follower);
  }
}

/**
 * The run on its way.
 * @typedef {object} RunState
 * @property {"idle" | "running" | "paused"} phase
 * @property {"pause" | "stop" | null} pending what was pressed, until it has worked
 * @property {"run" | "branch" | "more" | null} waits what waits for the device
 * @property {number} place its place in the queue, from 1; 0: not known
 * @property {string} waiting the same in a sentence, or ""
 * @property {number} forgotten how often something that waited was taken back or refused
 * @property {"server" | "browser"} source which is to compute the next run
 * @property {string[]} sources those that may
 */

/**
 * What is on show.
 * @typedef {object} ShownState
 * @property {Trace | null} trace
 * @property {object} laid another object whenever the trace's lanes or its reference are others
 * @property {object | null} touches of a lane beside itself with touches: {original, touched, touches}, see touchesOf
 * @property {number} records another number whenever some have come
 * @property {Trace | null} ended the trace that has ended last
 * @property {number} step the cursor's, from 0; -1: before the first
 * @property {{step: number, moving: boolean}} drawn what views draw, once a frame at most; moving: one of many to come
 * @property {number} hover the position that is looked at, or -1
 * @property {Map<number, number>} pins the colours' numbers of pinned positions; a change is another Map
 * @property {number} inspected the position in the drawer, or -1
 * @property {string} colour what cells are coloured by, see VALUES, or "state"
 * @property {boolean} guesses whether masked cells show them
 * @property {Epsilon | null} estimate where a grid shows one
 * @property {Wave | null} wave of touched lanes
 * @property {{shows: string[], question: object} | null} lesson of a lesson's page. shows: names of parts
 * @property {boolean} presents whether it is presenter mode
 * @property {{text: string, kind: "note" | "error"}} said a sentence about what was asked for, see `say`
 */

/**
 * The visit.
 * @typedef {object} VisitState
 * @property {{trace: Trace, source: string, number: number, kept: boolean}[]} runs the latest last, see keepRun
 * @property {Trace | null} recorded the recorded run
 * @property {string | null} edited the form's settings as a query, once a visitor has changed them
 * @property {object | null} wanted what a link wants to look at in the run that it asks for
 * @property {{settings, model, touches, weights, tokens} | null} linked the run of a link, which is to be computed at once
 * @property {object} looked another object whenever a person looks at something else
 */

/**
 * The form. prompt, model, length, steps, temperature: what Run would take.
 * @typedef {object} FormState
 * @property {string} prompt
 * @property {string} model
 * @property {number} length
 * @property {number} steps
 * @property {number} temperature
 * @property {boolean} foreign whether the model cannot know that prompt
 * @property {boolean} rare whether the prompt's words have many tokens
 * @property {string} tooLong a sentence where no answer fits beside the prompt, or ""
 * @property {{text: string, field: string | null} | null} refused why the last run was refused, and the field that is wrong
 * @property {boolean} decoder whether this browser has its decoder at hand
 * @property {string[]} examples openings for that model
 * @property {string} knows what that model knows, in words
 * @property {object[]} presets rules that a lane can have
 * @property {boolean} typed whether a lane has a rule that a visitor typed
 * @property {string} served the name of what a lane has that no browser has, or ""
 * @property {{said?: string} | null} arrived once the form holds what the page's load event brought
 * @property {boolean} form whether the sidebar is open
 */

/**
 * The page's state: RunState, ShownState, VisitState and FormState in one, and, once they are there:
 * decodes(model): whether a browser can compute it. live: who starts, pauses and stops a run, see Running.
 * player: who moves the cursor, see Timeline.
 */
export const page = new State({
  phase: "idle",
  pending: null,
  waits: null,
  place: 0,
  waiting: "",
  forgotten: 0,
  source: "server",
  sources: ["server"],
  trace: null,
  laid: {},
  touches: null,
  records: 0,
  ended: null,
  step: -1,
  drawn: { step: -1, moving: false },
  hover: -1,
  pins: new Map(),
  inspected: -1,
  colour: "state",
  guesses: true,
  estimate: null,
  wave: null,
  lesson: null,
  presents: false,
  said: { text: "", kind: "note" },
  runs: [],
  recorded: null,
  edited: null,
  wanted: null,
  linked: null,
  looked: {},
  prompt: "",
  length: 0,
  steps: 0,
  temperature: 0,
  model: "",
  foreign: false,
  rare: false,
  refused: null,
  tooLong: "",
  decoder: false,
  examples: [],
  knows: "",
  presets: [],
  typed: false,
  served: "",
  arrived: null,
  form: false,
  decodes: () => false,
  live: null,
  player: null,
});

/** Says a sentence about what was asked for, "" takes it back. kind: "note" or "error". */
export const say = (text, kind = "note") => page.set({ said: { text, kind } });

/** Whether a lesson's page leaves out a part of the stage. */
export const hides = (part) => page.now.lesson !== null && !page.now.lesson.shows.includes(part);

/** Draws what is on show again, as it is now. */
export const redraw = () => page.set({ drawn: { step: page.now.step, moving: false } });
