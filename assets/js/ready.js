// Tells the script in the page's head (load/hold.js) that Run can be taken from now on: stage and buttons are there, and
// the form holds what the page's load event brought.

import { listen } from "./bus.js";

const FORM_MS = 60; // the other fields of the same answer
const missing = new Set(["stage", "controls", "arrived"]);

for (const part of missing)
  listen(part, () => {
    if (missing.delete(part) && !missing.size) setTimeout(() => dispatchEvent(new Event("sl-ready")), FORM_MS);
  });
