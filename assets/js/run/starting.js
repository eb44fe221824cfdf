// Runs that the stage asks for: a touched lane, one with another epsilon, a lesson's own.

import { number } from "../trace/described.js";
import { MOST_TOUCHES, touchedName, touchesOf, withEvent } from "../trace/touches.js";
import { branchOf, touchOf } from "./branching.js";
import { page } from "./state.js";

const FULL = `A list has at most ${MOST_TOUCHES} touches: undo one of them first.`;

export class Starting {
  constructor({ stage, live }) {
    Object.assign(this, { stage, live });
  }

  /** Starts a lane that is another one with its own epsilon. Gives a sentence where it cannot. */
  race(lane, epsilon, gone = null) {
    const { compute } = lane.decoder;
    const rule = { ...(compute.lock ?? compute), epsilon };
    const changed = { compute: compute.lock ? { ...compute, lock: rule } : rule, parent: null }; // it shares no step
    const name = lane.name.replace(/, ε [^,]+/, "");
    return this.branchOff(lane, changed, 0, `${name.slice(0, 68)}, ε ${number(epsilon)}`, gone);
  }

  /** Starts a run of its own with the prompt of another one. Gives a sentence where it cannot. */
  raceLike(trace, lanes) {
    if (this.live.refuses) return this.live.refuses;
    this.live.ask(trace, lanes);
    return "";
  }

  /** Does something to a lane of the trace on show, see `Event`: that lane as it was and with all touches comes on show.
   * Gives a sentence where it cannot. */
  touch(lane, event) {
    const now = touchesOf(this.stage.trace);
    const before = lane === now?.touched ? now.touches : [];
    const touches = withEvent(before, event);
    if (touches.length > MOST_TOUCHES) return FULL;
    return this.#touched(now?.original ?? lane, touches, lane);
  }

  /** Takes the last touch back; without any the race is on show again. */
  undo() {
    const { original, touched, touches } = touchesOf(this.stage.trace);
    if (touches.length === 1) return this.back();
    return this.#touched(original, touches.slice(0, -1), touched);
  }

  /** The race that was touched; of a link's it is computed now. */
  back() {
    const { origin } = this;
    if (origin) this.live.backTo(origin);
    else this.live.pressForm();
    return "";
  }

  /** The race of the touched lane on show: of one that was kept over a reload the latest with the lane; null where none is here. */
  get origin() {
    const { trace, runs } = this.stage;
    if (trace.origin) return trace.origin;
    const { original } = touchesOf(trace);
    const known = ({ lanes, origin }) =>
      !origin && lanes.some(({ id, name }) => id === original.id && name === original.name);
    if (trace.settings) return null;
    const found = runs.entries.findLast((entry) => !touchesOf(entry.trace) && known(entry.trace))?.trace;
    return found ?? (page.now.recorded && known(page.now.recorded) ? page.now.recorded : null);
  }

  /** Shows a lane beside itself with touches. of: the lane that has done the steps before the last of them. */
  #touched(original, touches, of) {
    const { trace: before } = this.stage;
    const origin = touchesOf(before) ? this.origin : before;
    const race = origin ?? before;
    const refused = this.live.giveWay(race, before);
    if (refused) return refused;
    const events = touches.reduce(withEvent, original.decoder.events ?? []);
    const from = Math.min(of.count, firstOther(of.decoder.events ?? [], events));
    const name = touchedName(original, touches);
    const branching = { ...touchOf(race, original, events, { of, from, name }), before, cut: false };
    const { trace, child } = branching;
    Object.assign(trace, { origin, settings: before.settings, touchedLane: before.touchedLane });
    const [left] = trace.lanes;
    const known = left.run !== undefined; // by the engine that decodes now; a recording is computed again beside it
    const lanes = known && left.endsAt(left.count - 1) ? [child] : [left, child];
    this.live.askFor({ ...branching, origin: of.run === undefined ? left : of }, lanes);
    return "";
  }

  /** Starts a lane that is `parent` with something changed from a step on, in the place of the lane `gone` if there is one. Gives a sentence where it cannot. */
  branchOff(parent, changed, from, name, gone) {
    if (this.live.refuses) return this.live.refuses;
    const { trace: before } = this.stage;
    const cut = this.live.leave(before);
    const { trace, child } = branchOf(before, parent, changed, from, name, gone);
    const branching = { trace, child, from, before, cut };
    const unfinished = cut ? trace.lanes.filter((lane) => lane !== child && !lane.endsAt(lane.count - 1)) : [];
    this.live.askFor(branching, [...unfinished, child]);
    return "";
  }
}

/** The first step before which one of two lists has an event that the other has not. */
function firstOther(one, other) {
  const texts = [one, other].map((events) => events.map((event) => JSON.stringify(event)));
  const steps = (events, others) =>
    events.filter((event) => !others.includes(JSON.stringify(event))).map(({ step }) => step);
  return Math.min(Number.POSITIVE_INFINITY, ...steps(one, texts[1]), ...steps(other, texts[0]));
}
