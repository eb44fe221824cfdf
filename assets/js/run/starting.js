// Starts runs that the stage requests: a lane with another epsilon, and a lesson's run.

import { number } from "../trace/described.js";
import { branchOf } from "./branching.js";
import { page } from "./state.js";

/** Starts runs. */
export class Starting {
  constructor({ live }) {
    this.live = live;
  }

  /** Starts a copy of a lane with another epsilon. Returns the reason why it cannot start, a sentence, or "". */
  race(lane, epsilon, gone = null) {
    const { compute } = lane.decoder;
    const rule = { ...(compute.lock ?? compute), epsilon };
    const changedCompute = compute.lock ? { ...compute, lock: rule } : rule;
    const changed = { compute: changedCompute, parent: null }; // the new lane shares no step with it
    const plain = lane.name.replace(/, ε [^,]+/, "");
    const name = `${plain.slice(0, 68)}, ε ${number(epsilon)}`;
    return this.branchOff(lane, changed, 0, name, gone);
  }

  /** Starts a run of lanes with the prompt of a trace. Returns the reason why it cannot start, a sentence, or "". */
  raceLike(trace, lanes) {
    if (this.live.refuses) return this.live.refuses;
    this.live.ask(trace, lanes);
    return "";
  }

  /**
   * Starts a branch: the lane `parent` with changes from a step on. It replaces the lane `gone`, if there is one.
   * Returns the reason why it cannot start, a sentence, or "".
   */
  branchOff(parent, changed, from, name, gone) {
    if (this.live.refuses) return this.live.refuses;
    const { trace: before } = page.now;
    const cut = this.live.leave(before);
    const { trace, child } = branchOf(before, parent, changed, from, name, gone);
    const branching = { trace, child, from, before, cut };
    const isUnfinished = (lane) => lane !== child && !lane.endsAt(lane.count - 1);
    const unfinished = cut ? trace.lanes.filter(isUnfinished) : [];
    this.live.askFor(branching, [...unfinished, child]);
    return "";
  }
}
