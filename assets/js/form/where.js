// The list in which a visitor chooses where Run computes: on the server or in the browser.

import { h, setText } from "../dom.js";
import { page } from "../run/state.js";

const WHERE = { browser: "this browser", server: "this server" };

/** Makes the list. It is shown if the form's model can run at both places. An option tells how long a run waits. */
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
