// The stage inside another page, by `?embed` in the page's address or `#embed` in the address of an exported replay.
// It has no form, no title and no tabs. `alone=1` shows one lane alone. All other parameters of the address (see
// address.js) work, too.

import { h } from "../dom.js";

const { search, hash } = globalThis.location ?? { search: "", hash: "" };
const asked = [search, hash].map((text) => new URLSearchParams(text.slice(1))).find((query) => query.has("embed"));

/** The trace with the lanes that the address of an embedded page asks for: one lane for `alone=1`, else all lanes. */
export function embeddedLanes(trace, query = asked) {
  return query?.get("alone") === "1" && trace.lanes.length > 1 ? trace.withLanes([trace.subject]) : trace;
}

function fullAddress() {
  const address = new URL(location.href);
  address.hash = "";
  for (const name of ["embed", "alone"]) address.searchParams.delete(name);
  return address.href;
}

/** Hides everything but the stage on an embedded page. */
export function embed(root) {
  if (!asked) return;
  document.body.classList.add("sl-embed");
  const link = { href: fullAddress(), target: "_blank", rel: "noopener" };
  root.append(h("p.sl-embed-link", h("a", link, "Open in SureLock")));
}
