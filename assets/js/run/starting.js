// Runs that the stage asks for: a lane with another epsilon, a lesson's own.

import { number } from "../trace/described.js";
import { branchOf } from "./branching.js";
import { page } from "./state.js";

export class Starting {
  constructor({ live }) {
    this.live = live;
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

  /** Starts a lane that is `parent` with something changed from a step on, in the place of the lane `gone` if there is one. Gives a sentence where it cannot. */
  branchOff(parent, changed, from, name, gone) {
    if (this.live.refuses) return this.live.refuses;
    const { trace: before } = page.now;
    const cut = this.live.leave(before);
    const { trace, child } = branchOf(before, parent, changed, from, name, gone);
    const branching = { trace, child, from, before, cut };
    const unfinished = cut ? trace.lanes.filter((lane) => lane !== child && !lane.endsAt(lane.count - 1)) : [];
    this.live.askFor(branching, [...unfinished, child]);
    return "";
  }
}
