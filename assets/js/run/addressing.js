// Keeps the page's address up to date. It names the run on show, or the form's settings once the form was changed.

import { throttle } from "../dom.js";
import { touchesOf } from "../trace/touches.js";
import { apart, hasRoom, settingsOf, settingsOfForm, storyOf, writeAddress } from "./address.js";
import { page } from "./state.js";

const QUIET_MS = 300;

/** A link that opens the page with a run and its view. */
export function linkTo(trace, view) {
  const settings = settingsOf(trace);
  const query = writeAddress(settings, view, location.search, storyOf(trace));
  return `${location.origin}${location.pathname}?${query}${apart(settings)[1]}`;
}

function replaceQuery(query, hash = location.hash) {
  if (query !== location.search.slice(1) || hash !== location.hash)
    history.replaceState(history.state, "", `${location.pathname}${query && `?${query}`}${hash}`);
}

/**
 * Whether the address needs no settings for a trace: the trace is not a touched trace, and every lane is one of the
 * recorded run or has events, which the settings of an address cannot hold.
 */
const isRecorded = (trace) =>
  !touchesOf(trace) &&
  trace.lanes.every((lane) => lane.decoder.events?.length || page.now.recorded?.lanes.includes(lane));

/** Writes the address. */
export class Addressing {
  touched = false; // whether a visitor has used the form

  /** kept: a Kept. */
  constructor({ stage, kept }) {
    Object.assign(this, { stage, kept });
    this.later = throttle(() => this.write(), QUIET_MS);
    page.follow(["phase", "edited", "runs"], () => this.write());
    page.follow(["looked"], () => this.later());
  }

  /**
   * Writes the address. The step is included only if the cursor was moved or stopped (`player.held`). Once the form is
   * edited, the view that a link asked for (`wanted`) is written instead, if there is one.
   */
  write() {
    const { trace, player } = page.now;
    const { view } = this.stage;
    // Nothing is shown, or the page was opened by a link whose run has not begun: leave the address as it is.
    if (!trace || trace.provisional) return;
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

  /** Called with the form's values after a change by a visitor or by the page itself. */
  edit(values) {
    const { prompt, model, gen_length: length, steps, temperature } = values;
    page.set({ prompt: String(prompt ?? ""), model, length: Number(length) });
    page.set({ steps: Number(steps ?? 0), temperature: Number(temperature ?? 0) });
    if (this.touched) page.set({ edited: settingsOfForm(values), wanted: null });
  }
}
