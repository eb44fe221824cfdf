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
 * Of the page:
 * phase: of the run on its way: "idle", "running" or "paused". pending: "pause" or "stop" until it has worked, else null.
 * waits: what waits for the device ("run", "branch" or "more", else null). place: of that in the queue, from 1; 0: not
 * known. waiting: the same in a sentence, or "".
 * source: "server" or "browser", which is to compute the next run; sources: those that may.
 * recorded: the recorded run. edited: the form's settings as a query, once a visitor has changed them. wanted: what a
 * link wants to look at in the run that it asks for.
 * trace: on show. touches: {original, touched, touches} where that is a lane beside itself with touches, see touchesOf, else null.
 * linked: what a link tells of the run that is to be computed at once: {settings, model, touches, weights, tokens}; null else.
 * step: the cursor's, from 0 (-1: before the first). hover: the position that is looked at, or -1. pins: those pinned, a Map to
 * the number of each one's colour; a change is another Map.
 * prompt, model, length: that Run would take. foreign: whether the model cannot know that prompt. tooLong: a sentence where no answer fits beside it, or "". decoder: whether this browser has its decoder at hand. examples, knows: openings for that model, and what it knows, in words. presets: rules that a lane can have. typed: whether a lane of the form has a rule of its own. arrived: {said}, once the form holds what the page's load event brought.
 * form: whether the sidebar with the form is open.
 * live: who starts, pauses and stops a run (see Running), once the stage is there.
 */
export const page = new State({
  phase: "idle",
  pending: null,
  waits: null,
  place: 0,
  waiting: "",
  source: "server",
  sources: ["server"],
  recorded: null,
  edited: null,
  wanted: null,
  linked: null,
  trace: null,
  touches: null,
  step: -1,
  hover: -1,
  pins: new Map(),
  prompt: "",
  length: 0,
  model: "",
  foreign: false,
  tooLong: "",
  decoder: false,
  examples: [],
  knows: "",
  presets: [],
  typed: false,
  arrived: null,
  form: false,
  live: null,
});
