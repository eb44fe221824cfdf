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
 * Of the run on its way:
 * phase: "idle", "running" or "paused". pending: "pause" or "stop" until it has worked, else null.
 * waits: what waits for the device ("run", "branch" or "more", else null). place: of that in the queue, from 1; 0: not
 * known. waiting: the same in a sentence, or "". forgotten: how often something that waited was taken back or refused.
 * source: "server" or "browser", which is to compute the next run; sources: those that may.
 *
 * Of what is on show:
 * trace, and laid, another object whenever its lanes or the reference are others. touches: {original, touched, touches} where
 * that is a lane beside itself with touches, see touchesOf, else null. records: another number whenever some have come; ended: the trace that has
 * ended last.
 * step: the cursor's, from 0 (-1: before the first). drawn: {step, moving: whether it is one of many to come}, once a frame at
 * most: what views draw. hover: the position that is looked at, or -1. pins: those pinned, a Map to the number of each one's
 * colour; a change is another Map. inspected: the position in the drawer, or -1.
 * colour: what cells are coloured by, see VALUES, or "state". guesses: whether masked cells show them.
 * estimate: see Epsilon, where a grid shows one. wave: see Wave, of touched lanes. Both are null else.
 * lesson: {shows: names of parts, question} of a lesson's page, else null. presents: whether it is presenter mode.
 * said: {text, kind: "note" or "error"}, a sentence about what was asked for; see `say`.
 *
 * Of the visit:
 * runs: [{trace, source, number, kept}, ...], the latest last, see keepRun. recorded: the recorded run.
 * edited: the form's settings as a query, once a visitor has changed them. wanted: what a link wants to look at in the run that
 * it asks for. linked: what a link tells of the run that is to be computed at once: {settings, model, touches, weights,
 * tokens}; null else. looked: another object whenever a person looks at something else.
 *
 * Of the form:
 * prompt, model, length, steps, temperature: that Run would take. foreign: whether the model cannot know that prompt; rare:
 * whether its words are many tokens each. tooLong: a sentence where no answer fits beside it, or "". refused: {text, field: the
 * name of the one that it is about, or null} of the run that was asked for last, else null. decoder: whether this browser has its decoder at hand. examples, knows: openings for that
 * model, and what it knows, in words. presets: rules that a lane can have. typed: whether a lane of the form has a rule of its
 * own. served: the name of what a lane has that no browser has, or "". arrived: {said}, once the form holds what the page's load event brought. form: whether the sidebar is open.
 *
 * decodes(model): whether a browser can compute it. live: who starts, pauses and stops a run, see Running. player: who moves the
 * cursor, see Timeline. All once they are there.
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
