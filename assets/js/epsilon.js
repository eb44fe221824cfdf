// The epsilon slider: 1-2-5 steps on a log scale, and "never" at its left end. The component's value is epsilon itself, -1 for never.

import { h, setText } from "./dom.js";

const NEVER = -1;
const STOPS = [NEVER, ...Array.from({ length: 8 }, (_, i) => [1, 2, 5].map((m) => Number(`${m}e${i - 8}`))).flat(), 1];

function text(e) {
  if (e < 0) return "never lock";
  return e >= 0.01 ? String(e) : e.toExponential();
}

/** The stop nearest to a value, on the log scale. */
function nearest(value) {
  if (!(value > 0)) return 0;
  let best = 1;
  for (let i = 1; i < STOPS.length; i++)
    if (Math.abs(Math.log(STOPS[i] / value)) < Math.abs(Math.log(STOPS[best] / value))) best = i;
  return best;
}

export function connect({ element, props, watch }) {
  const output = h("output", { class: "sl-epsilon-value", for: "sl-epsilon-range" });
  const range = h("input", { type: "range", id: "sl-epsilon-range", min: 0, max: STOPS.length - 1, step: 1 });
  const show = (value) => {
    setText(output, text(value));
    range.setAttribute("aria-valuetext", text(value));
  };
  const take = () => {
    const value = Number(props.value);
    range.value = nearest(value);
    show(value);
  };
  range.addEventListener("input", () => show(STOPS[range.value]));
  range.addEventListener("change", () => {
    props.value = STOPS[range.value];
  });
  element
    .querySelector(".sl-epsilon")
    .replaceChildren(
      h(
        "div",
        { class: "sl-epsilon-head" },
        h("label", { for: "sl-epsilon-range" }, "ε (largest step-wise KL that locks)"),
        output,
      ),
      range,
      h(
        "div",
        { class: "sl-epsilon-ends", "aria-hidden": "true" },
        h("span", {}, "never"),
        h("span", {}, "1e-4"),
        h("span", {}, "1"),
      ),
    );
  watch("value", take);
  take();
}
