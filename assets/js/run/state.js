// The state of the page, in one place. A view follows the parts of the state that it shows.

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

  /** Calls f(state) at once, and whenever a named part has changed. Returns a function that ends this. */
  follow(names, f) {
    const follower = (now) => f(now);
    this.#followers.set(follower, names);
    follower(this.now);
    return () => this.#followers.delete(follower);
  }
}

/**
 * The current run.
 * @typedef {object} RunState
 * @property {"idle" | "running" | "paused"} phase
 * @property {"pause" | "stop" | null} pending the pressed button, until it has taken effect
 * @property {"run" | "branch" | "more" | null} waits the request that waits for the device
 * @property {number} place the request's place in the queue, from 1; 0 if it is unknown
 * @property {string} waiting the place in a sentence, or ""
 * @property {number} forgotten how many waiting requests were cancelled or refused
 * @property {"server" | "browser"} source the source that computes the next run
 * @property {string[]} sources the sources that may compute runs
 */

/**
 * The trace on show and its view.
 * @typedef {object} ShownState
 * @property {Trace | null} trace
 * @property {{trace?: Trace}} laid the trace whose grids and charts are made; a new object whenever the trace has other
 *   lanes or another reference
 * @property {object | null} touches {original, touched, touches} of a touched trace, see touchesOf
 * @property {number} records a new number whenever records have come
 * @property {Trace | null} ended the trace that has ended last
 * @property {number} step the cursor's step, from 0; -1 before the first step
 * @property {{step: number, moving: boolean}} drawn the step that views draw, at most once a frame; moving: whether the
 *   cursor moves
 * @property {number} hover the position that is looked at, or -1
 * @property {Map<number, number>} pins the colour numbers of pinned positions; every change makes a new Map
 * @property {number} inspected the position in the drawer, or -1
 * @property {string} colour the value that colours cells, see VALUES, or "state"
 * @property {boolean} guesses whether masked cells show guesses
 * @property {Epsilon | null} estimate the estimate that a grid shows
 * @property {Wave | null} wave the wave of a touched lane
 * @property {{shows: string[], question: object} | null} lesson the page of a lesson; shows: names of visible parts
 * @property {boolean} presents whether presenter mode is on
 * @property {{text: string, kind: "note" | "error"}} said the sentence about the last request, see `say`
 */

/**
 * The visit.
 * @typedef {object} VisitState
 * @property {{trace: Trace, source: string, number: number, kept: boolean}[]} runs the runs, the latest last, see
 *   keepRun
 * @property {Trace | null} recorded the recorded run
 * @property {string | null} edited the form's settings as a query, null before a visitor has changed them
 * @property {object | null} wanted the view that a link asks for
 * @property {{settings, model, touches, weights, tokens} | null} linked the run of a link, which is computed at once
 * @property {object} looked a new object whenever a person changes the view
 */

/**
 * The form. prompt, model, length, steps, temperature: the values of the next run.
 * @typedef {object} FormState
 * @property {string} prompt
 * @property {string} model
 * @property {number} length
 * @property {number} steps
 * @property {number} temperature
 * @property {boolean} foreign whether the model cannot know the words of the prompt
 * @property {boolean} rare whether the prompt's words have many tokens
 * @property {string} tooLong a sentence if no answer fits beside the prompt, else ""
 * @property {{text: string, field: string | null} | null} refused the reason why the last run was refused, and the
 *   field
 * @property {boolean} decoder whether this browser has loaded its decoder
 * @property {string[]} examples example prompts for the model
 * @property {string} knows the knowledge of the model, in words
 * @property {object[]} presets rules that a lane can have
 * @property {boolean} typed whether a lane has a rule that a visitor typed
 * @property {string} served the name of a lane's rule or policy that needs a server, or ""
 * @property {{said?: string} | null} arrived the result of the page's load event, null before the form has its settings
 * @property {boolean} form whether the sidebar is open
 */

/**
 * The page's state. It has the fields of RunState, ShownState, VisitState and FormState, and three further fields:
 * decodes(model): returns whether a browser can compute a model. live: the Running, which starts and stops runs.
 * player: the Timeline, which moves the cursor.
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

/** Shows a sentence about the last request; "" removes it. kind: "note" or "error". */
export const say = (text, kind = "note") => page.set({ said: { text, kind } });

/** Whether a lesson's page hides a part of the stage. */
export const hides = (part) => page.now.lesson !== null && !page.now.lesson.shows.includes(part);

/** Lets the views draw the present step again. */
export const redraw = () => page.set({ drawn: { step: page.now.step, moving: false } });
