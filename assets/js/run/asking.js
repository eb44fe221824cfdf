// What the stage asks of a run on its way, and of the source that computes it: the same in the page and in a replay that
// holds a decoder.

import { page } from "./state.js";

/** Options of the stage, see `Stage`. source: see Sources. parts(): {stage, live, starting}, which come after it. */
export const asking = ({ source, parts }) => ({
  fetchTop: (lane, cell, step) => source.top(lane, cell, step),
  fetchAttended: (trace, lane, cell, t) => source.attended(trace, lane, cell, t),
  stepLive: () => parts().live.step(),
  onLive: (wish) => parts().live[wish](),
  whatIf: {
    branch: (lane, event, name, gone) => parts().starting.branch(lane, event, name, gone),
    token: (text) => source.token(text, parts().stage.trace.header.model.name),
    presets: () => page.now.presets,
    race: (lane, epsilon, gone) => parts().starting.race(lane, epsilon, gone),
  },
});
