// The options by which a stage calls the current run and its source, for the page and for a replay with a decoder.

import { page } from "./state.js";

/**
 * Options of a stage, see StageOptions.
 * parts: {stage, source, live, starting}. The parts may be added after this call. source: a Sources.
 */
export const asking = (parts) => ({
  fetchTop: (lane, cell, step) => parts.source.top(lane, cell, step),
  fetchAttended: (trace, lane, cell, t) => parts.source.attended(trace, lane, cell, t),
  stepLive: () => parts.live.step(),
  onLive: (action) => parts.live[action](),
  touching: {
    live: () => parts.live,
    token: (text) => parts.source.token(text, page.now.trace.header.model.name),
    presets: () => page.now.presets,
    race: (lane, epsilon, gone) => parts.starting.race(lane, epsilon, gone),
  },
});
