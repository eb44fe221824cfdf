// The stage inside another page: `?embed` in the page's address, `#embed` in that of an exported replay. No form, no title, no
// tabs; `lanes=1` shows one lane alone, `step=` one step at rest.

import { h } from "./dom.js";
import { subject } from "./narrator.js";

const { search, hash } = globalThis.location ?? { search: "", hash: "" };
const asked = [search, hash].map((text) => new URLSearchParams(text.slice(1))).find((query) => query.has("embed"));

/** How a trace is shown: {trace, step, play}; as it is, and playing, where the page stands alone. */
export function embedded(trace, query = asked) {
  const lanes = query?.get("lanes") === "1" ? [subject(trace)] : trace.lanes;
  const step = /^\d{1,9}$/.test(query?.get("step") ?? "") ? Math.max(1, Number(query.get("step"))) : null;
  return {
    trace: lanes.length < trace.lanes.length ? trace.withLanes(lanes) : trace,
    step: step === null ? undefined : Math.min(step, trace.count) - 1,
    play: step === null,
  };
}

/** The same page with everything around the stage. */
function fullAddress() {
  const address = new URL(location.href);
  address.hash = "";
  for (const name of ["embed", "lanes"]) address.searchParams.delete(name);
  return address.href;
}

/** Makes room for the stage alone; does nothing where the page stands alone. */
export function embed(root) {
  if (!asked) return;
  document.body.classList.add("sl-embed");
  root.append(
    h(
      "p",
      { class: "sl-embed-link" },
      h("a", { href: fullAddress(), target: "_blank", rel: "noopener" }, "Open in SureLock"),
    ),
  );
}
