// The runs of touched lanes: a lane as it was beside the same lane with touches, and the ways back.

import "../loaded_first.js";
import { sameSettings, settingsOf } from "../run/address.js";
import { freeId } from "../run/branching.js";
import { page } from "../run/state.js";
import { begun } from "../trace/lane.js";
import { MOST_TOUCHES, touchedName, touchesOf, withEvent } from "../trace/touches.js";

const FULL = `A list has at most ${MOST_TOUCHES} touches: undo one of them first.`;

/** A lane beside the same lane with other events: {trace: both, child: the latter, from}, see branchOf. race: the trace that
 * the lane is of. of: the lane whose first `from` steps are those of the child. */
export function touchOf(race, lane, events, { of, from, name }) {
  const whole = lane.endsAt(lane.count - 1);
  const left = whole ? lane : Object.assign(begun(race.header, lane.decoder, lane, lane.count), { run: lane.run });
  const trace = Object.assign(race.withLanes([left], left), { origin: race });
  const decoder = { ...lane.decoder, engine: of.decoder.engine, parent: lane.id, events, id: freeId(race), name };
  const child = trace.branch(decoder, from, of);
  return { trace, child, from };
}

export class TouchedRuns {
  /** live: see Running. */
  constructor(live) {
    this.live = live;
  }

  /** Does something to a lane of the trace on show, see `Event`: that lane as it was and with all touches comes on show.
   * Gives a sentence where it cannot. */
  touch(lane, event) {
    const now = touchesOf(page.now.trace);
    const before = lane === now?.touched ? now.touches : [];
    const touches = withEvent(before, event);
    if (touches.length > MOST_TOUCHES) return FULL;
    return this.#touched(now?.original ?? lane, touches, lane);
  }

  /** Takes the last touch back; without any the race is on show again. */
  undo() {
    const { original, touched, touches } = touchesOf(page.now.trace);
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

  /**
   * The race of the touched lane on show, or null where this page does not have it.
   * Where the lane was kept over a reload, the latest race that has it.
   */
  get origin() {
    const { trace, runs } = page.now;
    if (trace.origin) return trace.origin;
    const { original } = touchesOf(trace);
    const all = [page.now.recorded, ...runs.map((entry) => entry.trace)];
    const races = all.filter((race) => race && !touchesOf(race));
    const has = ({ lanes }) => lanes.some(({ id, name }) => id === original.id && name === original.name);
    const same = (race) => !trace.settings || sameSettings(settingsOf(race), trace.settings);
    return races.findLast((race) => has(race) && same(race)) ?? null;
  }

  /** Shows a lane beside itself with touches. of: the lane that has done the steps before the last of them. */
  #touched(original, touches, of) {
    const { trace: before } = page.now;
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
}

/** The first step before which one of two lists has an event that the other has not. */
function firstOther(one, other) {
  const texts = [one, other].map((events) => events.map((event) => JSON.stringify(event)));
  const steps = (events, others) =>
    events.filter((event) => !others.includes(JSON.stringify(event))).map(({ step }) => step);
  return Math.min(Number.POSITIVE_INFINITY, ...steps(one, texts[1]), ...steps(other, texts[0]));
}
