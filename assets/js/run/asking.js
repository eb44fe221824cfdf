// What the stage asks of a run on its way and of its source, in the page and in a replay that holds a decoder.

import { page } from "./state.js";

/** Options of the stage, see `Stage`. parts: {stage, source, live, starting}, which may come after it; source: see Sources. */
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
