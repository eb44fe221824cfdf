// Small DOM helpers. Text always goes in as text nodes: nothing in this folder builds markup from strings.

/** h("button.sl-x.sl-y", {onclick: f, "aria-label": "y"}, "text", node): a tag and its classes; attributes may be left out. */
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

/** A list to choose from: [[value, text], ...]. */
export function select(what, attributes, options, chosen = options[0]?.[0]) {
  const list = options.map(([value, text]) => h("option", { value, selected: value === chosen }, text));
  return h(what, attributes, list);
}

/** A dialog over the page, which keeps still behind it. A press beside it closes it. */
export function dialog(what, attributes, ...children) {
  const node = h(what, attributes, ...children);
  node.addEventListener("keydown", (event) => event.stopPropagation());
  node.addEventListener("click", (event) => event.target === node && node.close());
  return node;
}

/** `h` of a picture. */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Sets text only where it changed, so that a running page does not relayout for nothing. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Calls f once per animation frame at most, with the latest arguments. */
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

/** Calls f at most once per `ms`, a number or a function that gives it, the last call always included. */
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

/** Calls f when the node comes into view; inView says whether it is. A run that streams draws only what is seen. */
const hidden = new WeakSet();
export const inView = (node) => !hidden.has(node);
export function watchView(node, f) {
  const seen = (entries) => {
    if (!entries.at(-1).isIntersecting) return hidden.add(node);
    hidden.delete(node);
    f();
  };
  new IntersectionObserver(seen, { rootMargin: "100px" }).observe(node);
}

/** Calls f once: when the node comes into view after `first`, a promise, when the page is first scrolled, or after so long. */
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

/** How many pixels of the window a pixel of a node takes: more than 1 in presenter mode. */
export const zoomOf = (node) => node.getBoundingClientRect().width / node.offsetWidth || 1;

/** Whether the screen is narrow: there the drawer is a sheet from below. */
export const isNarrow = () => matchMedia("(max-width: 760px)").matches;

/** Whether a finger is all that there is to point with. */
export const isTouch = () => globalThis.matchMedia?.("(hover: none)").matches ?? false;

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Offers text, or a list of texts one after the other, as a file. */
export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content].flat(), { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** "1 step", "2 steps". */
export const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

/** What two texts share, in words. */
export function sameText({ words, whole, open }) {
  if (whole) return "the same text";
  if (words) return `the same text for the first ${words === 1 ? "word" : count(words, "word")}`;
  return open ? "nothing to compare yet" : "another text from the first word";
}
/** A number in two digits, not as a power of ten where it need not be: 0.012. */
export const short = (x) => (x === 0 || (x >= 1e-4 && x < 1e4) ? String(Number(x.toPrecision(2))) : x.toExponential(1));
export const percent = (x, digits = 0) => (Number.isFinite(x) ? `${(100 * x).toFixed(digits)} %` : "–");
export function seconds(x) {
  if (x < 9.95) return `${x.toFixed(2)} s`;
  return `${x.toFixed(x < 99.5 ? 1 : 0)} s`;
}
export function scientific(x) {
  if (x === Infinity) return "none yet";
  if (x === 0) return "≤ 1e-12";
  return x >= 0.01 && x < 1000 ? x.toPrecision(3) : x.toExponential(1);
}
