// Starts the runs of touched lanes, in which a lane is shown beside the same lane with touches, and leads back to the
// race.

import "../loaded_first.js";
import { sameSettings, settingsOf } from "../run/address.js";
import { freeId } from "../run/branching.js";
import { page } from "../run/state.js";
import { begun } from "../trace/lane.js";
import { MOST_TOUCHES, touchedName, touchesOf, withEvent } from "../trace/touches.js";

const FULL = `A list has at most ${MOST_TOUCHES} touches: undo one of them first.`;

/**
 * A trace of a lane beside the same lane with other events: {trace, child, from}, see branchOf.
 * @param {Trace} race the trace to which the lane belongs
 * @param {Lane} lane the original lane
 * @param {object[]} events the events of the child
 * @param {{of: Lane, from: number, name: string}} origin the child begins with the first `from` steps of the lane `of`
 */
export function touchOf(race, lane, events, { of, from, name }) {
  const whole = lane.endsAt(lane.count - 1);
  const left = whole ? lane : Object.assign(begun(race.header, lane.decoder, lane, lane.count), { run: lane.run });
  const trace = Object.assign(race.withLanes([left], left), { origin: race });
  const decoder = { ...lane.decoder, engine: of.decoder.engine, parent: lane.id, events, id: freeId(race), name };
  const child = trace.branch(decoder, from, of);
  return { trace, child, from };
}

/** Starts and undoes touches. */
export class TouchedRuns {
  /** live: a Running. */
  constructor(live) {
    this.live = live;
  }

  /**
   * Touches a lane of the trace on show with an event (see event.js): shows the original lane beside the touched lane.
   * Returns "", or the reason why the lane cannot be touched.
   */
  touch(lane, event) {
    const now = touchesOf(page.now.trace);
    const before = lane === now?.touched ? now.touches : [];
    const touches = withEvent(before, event);
    if (touches.length > MOST_TOUCHES) return FULL;
    return this.#touched(now?.original ?? lane, touches, lane);
  }

  /** Takes the last touch back. If no touch is left, shows the race again. */
  undo() {
    const { original, touched, touches } = touchesOf(page.now.trace);
    if (touches.length === 1) return this.back();
    return this.#touched(original, touches.slice(0, -1), touched);
  }

  /** Shows the race that was touched. If a link brought the touches, the race is computed now. */
  back() {
    const { origin } = this;
    if (origin) this.live.backTo(origin);
    else this.live.pressForm();
    return "";
  }

  /**
   * The race of the touched lane on show, null if this page does not have it.
   * After a reload it is the latest race with the same lane and settings.
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

  /** Shows a lane beside the same lane with touches. of: the lane that has the steps before the last touch. */
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
    const known = left.run !== undefined; // computed by the present engine; a recording is computed again
    const lanes = known && left.endsAt(left.count - 1) ? [child] : [left, child];
    this.live.askFor({ ...branching, origin: of.run === undefined ? left : of }, lanes);
    return "";
  }
}

/** The first step with an event that only one of two lists has. */
function firstOther(one, other) {
  const texts = [one, other].map((events) => events.map((event) => JSON.stringify(event)));
  const steps = (events, others) =>
    events.filter((event) => !others.includes(JSON.stringify(event))).map(({ step }) => step);
  return Math.min(Number.POSITIVE_INFINITY, ...steps(one, texts[1]), ...steps(other, texts[0]));
}
