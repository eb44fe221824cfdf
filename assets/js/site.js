// The page without a server: the visitor's browser decodes. See surelock/ui/site.py.

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

/** Stands where a server would. */
const none = {
  start(_, hear) {
    queueMicrotask(() => hear([{ refused: ALONE }])); // no sooner than the caller has the run
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
