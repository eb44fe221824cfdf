// Small DOM helpers. Texts become text nodes: no script in this folder builds markup from strings.

/**
 * Makes an element: h("button.sl-x.sl-y", {onclick: f, "aria-label": "y"}, "text", node).
 * @param {string} what the tag and its classes
 * @param {...*} parts an object of attributes, which may be left out, and then the children
 */
export function h(what, ...parts) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  if (tag === "button") node.type = "button";
  const attributes = parts[0]?.constructor === Object ? parts.shift() : {};
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...parts.flat().filter((part) => part !== null && part !== undefined));
  return node;
}

/** Makes a list to choose from. options: [[value, text], ...]. chosen: the value that is selected first. */
export function select(what, attributes, options, chosen = options[0]?.[0]) {
  const list = options.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h(what, attributes, list);
}

/** Makes a dialog. Keys in the dialog do not reach the page. A press beside the dialog closes it. */
export function dialog(what, attributes, ...children) {
  const node = h(what, attributes, ...children);
  node.addEventListener("keydown", (event) => event.stopPropagation());
  node.addEventListener("click", (event) => event.target === node && node.close());
  return node;
}

/** Makes an element of an SVG picture. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Sets the text of a node if it has changed. Setting an equal text would make the browser compute the layout again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Returns a function that calls f at most once per animation frame, with the latest arguments. */
export function perFrame(f) {
  let waiting = false;
  let latest = [];
  return (...args) => {
    latest = args;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      f(...latest);
    });
  };
}

/**
 * Returns a function that calls f at most once in `ms` milliseconds. The last call is always made.
 * @param {number | function(): number} ms
 */
export function throttle(f, ms) {
  let timer = null;
  let last = -Infinity;
  let latest = [];
  const call = () => {
    timer = null;
    last = performance.now();
    f(...latest);
  };
  return (...args) => {
    latest = args;
    if (timer !== null) return;
    const wait = last + (typeof ms === "function" ? ms() : ms) - performance.now();
    if (wait <= 0) call();
    else timer = setTimeout(call, wait);
  };
}

const hidden = new WeakSet(); // watched nodes that are out of view

/** Whether a node that `watchView` watches is in view. A streaming run draws only nodes in view. */
export const inView = (node) => !hidden.has(node);

/** Calls f whenever a node comes into view. */
export function watchView(node, f) {
  const seen = (entries) => {
    if (!entries.at(-1).isIntersecting) return hidden.add(node);
    hidden.delete(node);
    f();
  };
  new IntersectionObserver(seen, { rootMargin: "100px" }).observe(node);
}

/**
 * Calls f once, at the first of three events: the node comes into view after the promise `first` is fulfilled, the page
 * is scrolled, or `ms` milliseconds have passed.
 */
export function beforeSeen(node, f, first, ms) {
  let asked = false;
  const once = () => {
    if (!asked) f();
    asked = true;
  };
  first.then(() => watchView(node, once));
  addEventListener("scroll", once, { once: true, passive: true });
  setTimeout(once, ms);
}

/** The number of window pixels for a pixel of a node, more than 1 in presenter mode. */
export const zoomOf = (node) => node.getBoundingClientRect().width / node.offsetWidth || 1;

/** Whether the screen is narrow. On a narrow screen the drawer is a sheet at the bottom. */
export const isNarrow = () => matchMedia("(max-width: 760px)").matches;

/** Whether the visitor can point only with a finger. */
export const isTouch = () => globalThis.matchMedia?.("(hover: none)").matches ?? false;

/** Whether the visitor prefers less motion. */
export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Offers a text, or a list of texts joined together, as a file to download. */
export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content].flat(), { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A number with its noun: "1 step", "2 steps". */
export const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

/** The result of `Trace.sameText` in words. */
export function sameText({ words, whole, open }) {
  if (whole) return "the same text";
  if (words) return `the same text for the first ${words === 1 ? "word" : count(words, "word")}`;
  return open ? "nothing to compare yet" : "another text from the first word";
}
/** A number with two significant digits, such as 0.012; very small and very large numbers as powers of ten. */
export const short = (x) => (x === 0 || (x >= 1e-4 && x < 1e4) ? String(Number(x.toPrecision(2))) : x.toExponential(1));
/** A share in percent, "–" if it is not finite. */
export const percent = (x, digits = 0) => (Number.isFinite(x) ? `${(100 * x).toFixed(digits)} %` : "–");
/** Seconds with their unit. */
export function seconds(x) {
  if (x < 9.95) return `${x.toFixed(2)} s`;
  return `${x.toFixed(x < 99.5 ? 1 : 0)} s`;
}
/** A KL in nats, as text. */
export function scientific(x) {
  if (x === Infinity) return "none yet";
  if (x === 0) return "≤ 1e-12";
  return x >= 0.01 && x < 1000 ? x.toPrecision(3) : x.toExponential(1);
}
