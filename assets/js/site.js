// The page without a server, which surelock/ui/site.py writes: the visitor's browser decodes.

import { SiteForm } from "./form/site.js";
import { readAddress } from "./run/address.js";
import { BrowserClient } from "./run/browser_client.js";
import { begin } from "./run/live.js";
import { Sources } from "./run/sources.js";
import { page } from "./run/state.js";
import { followScheme } from "./stage/theme.js";

followScheme();
const initial = JSON.parse(document.getElementById("sl-form").textContent);
const ALONE = `This page has no server: its browser runs the model “${initial.model}” alone.`;

/** Takes the place of a server: it refuses everything. */
const none = {
  start(_, hear) {
    queueMicrotask(() => hear([{ refused: ALONE }])); // after `start` has returned
    return { leave() {} };
  },
  token: () => ({ problem: ALONE }),
  attended: () => null,
};

const form = new SiteForm({
  initial,
  onRun: (values) => page.now.live.press(values),
  onEdit: (values) => window.surelock?.addressing.edit(values),
});
page.set({ sources: ["browser"], source: "browser", model: initial.model });
begin({
  root: document.getElementById("sl-stage"),
  source: new Sources(none, new BrowserClient()),
  fill: (settings) => form.fill(settings),
  refuses: (model) => (model === initial.model ? "" : ALONE),
});
form.fill(readAddress(location.search, location.hash).settings);
page.set({ prompt: form.prompt.value });
