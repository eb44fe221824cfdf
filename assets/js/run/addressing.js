// The page's address follows what is on show; while the form asks for something else, that.

import { throttle } from "../dom.js";
import { touchesOf } from "../trace/touches.js";
import { apart, hasRoom, settingsOf, settingsOfForm, storyOf, writeAddress } from "./address.js";
import { page } from "./state.js";

const QUIET_MS = 300;

/** A link that reopens the page with what is looked at in this run. */
export function linkTo(trace, view) {
  const settings = settingsOf(trace);
  const query = writeAddress(settings, view, location.search, storyOf(trace));
  return `${location.origin}${location.pathname}?${query}${apart(settings)[1]}`;
}

function replaceQuery(query, hash = location.hash) {
  if (query !== location.search.slice(1) || hash !== location.hash)
    history.replaceState(history.state, "", `${location.pathname}${query && `?${query}`}${hash}`);
}

/** Whether a run shows nothing but the recorded one's lanes, and what was tried by hand on them. */
const isRecorded = (trace) =>
  !touchesOf(trace) &&
  trace.lanes.every((lane) => lane.decoder.events?.length || page.now.recorded?.lanes.includes(lane));

export class Addressing {
  touched = false; // whether a visitor was at the form

  /** kept: see Kept. */
  constructor({ stage, kept }) {
    Object.assign(this, { stage, kept });
    this.later = throttle(() => this.write(), QUIET_MS);
    page.follow(["phase", "edited", "runs"], () => this.write());
    page.follow(["looked"], () => this.later());
  }

  /** A step is in it where somebody put the cursor. */
  write() {
    const { trace, player } = page.now;
    const { view } = this.stage;
    if (!trace || trace.provisional) return; // the address is the link's
    const { edited, wanted } = page.now;
    const settings = edited ?? (isRecorded(trace) ? "" : settingsOf(trace));
    const looked = { ...view, step: player.held ? view.step : -1 };
    const story = edited || trace.race.live ? {} : storyOf(trace);
    const query = writeAddress(settings, edited ? (wanted ?? {}) : looked, location.search, story);
    replaceQuery(query, apart(settings)[1]);
    this.kept.shown = { run: trace.key ?? null, query, form: hasRoom(settings) ? null : settings };
  }

  place(name, number) {
    const query = new URLSearchParams(location.search);
    for (const part of ["lesson", "page"]) query.delete(part);
    if (name) for (const [part, value] of Object.entries({ lesson: name, page: number + 1 })) query.set(part, value);
    replaceQuery(query.toString());
    this.write();
  }

  /** The form's values after one of them changed: by a visitor, or as the page settled. */
  edit(values) {
    const { prompt, model, gen_length: length, steps, temperature } = values;
    page.set({ prompt: String(prompt ?? ""), model, length: Number(length) });
    page.set({ steps: Number(steps ?? 0), temperature: Number(temperature ?? 0) });
    if (this.touched) page.set({ edited: settingsOfForm(values), wanted: null });
  }
}
