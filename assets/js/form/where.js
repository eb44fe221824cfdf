// Where Run computes: on the server, or in the visitor's browser.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";

const WHERE = { browser: "this browser", server: "this server" };

/** A list of both, shown if the form's model runs on both. An option says how long a run waits there. */
export function where() {
  const change = ({ target }) => page.set({ source: target.value });
  const choice = h("select.sl-action-where", { onchange: change });
  const field = h("label.sl-where", h("span", "Run computes in "), choice);
  page.follow(["sources"], ({ sources }) => {
    choice.replaceChildren(...sources.map((name) => h("option", { value: name }, "")));
  });
  const shown = ["sources", "source", "place", "model", "typed", "served", "decodes"];
  page.follow(shown, ({ sources, source: chosen, place, model, typed, served, decodes }) => {
    const [needed, why] = served
      ? ["server", `“${served}” runs on the server`]
      : [typed && "browser", "A rule of your own runs in this browser"];
    const source = needed && sources.length > 1 ? needed : chosen;
    choice.disabled = source !== chosen;
    choice.title = choice.disabled ? why : "";
    const means = { browser: "at once", server: place ? `${place} before you` : "shared" };
    for (const option of choice.children) setText(option, `${WHERE[option.value]} · ${means[option.value]}`);
    choice.value = source;
    field.hidden = sources.length < 2 || (model !== "" && !decodes(model));
  });
  return field;
}
