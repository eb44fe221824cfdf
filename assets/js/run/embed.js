// The stage inside another page: `?embed` in the page's address, `#embed` in the address of an exported replay.
// It has no form, no title and no tabs; `alone=1` shows one lane alone.
// What else the address says (see address.js) holds there, too.

import { h } from "../dom.js";

const { search, hash } = globalThis.location ?? { search: "", hash: "" };
const asked = [search, hash].map((text) => new URLSearchParams(text.slice(1))).find((query) => query.has("embed"));

/** The trace with the lanes that are asked for: all where the page stands alone. */
export function embeddedLanes(trace, query = asked) {
  return query?.get("alone") === "1" && trace.lanes.length > 1 ? trace.withLanes([trace.subject]) : trace;
}

function fullAddress() {
  const address = new URL(location.href);
  address.hash = "";
  for (const name of ["embed", "alone"]) address.searchParams.delete(name);
  return address.href;
}

/** Makes room for the stage alone; does nothing where the page stands alone. */
export function embed(root) {
  if (!asked) return;
  document.body.classList.add("sl-embed");
  const link = { href: fullAddress(), target: "_blank", rel: "noopener" };
  root.append(h("p.sl-embed-link", h("a", link, "Open in SureLock")));
}
