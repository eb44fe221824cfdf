// Colours for the canvases, read from the stylesheet, and a notice when the theme changes.

const NAMES = [
  "masked",
  "masked-dot",
  "active",
  "active-ring",
  "active-text",
  "locked",
  "locked-hatch",
  "locked-text",
  "prompt",
  "differs",
  "fresh",
  "fresh-lock",
  "ink",
  "muted",
  "panel",
  "line",
  "resting",
  "resting-ring",
  "raster-masked",
  "raster-active",
  "raster-locked",
  "raster-resting",
  "raster-waiting",
];
export const PIN_COLOURS = 6;
const LANE_COLOURS = 4;

/** The palette in force at `element`: {masked: "#…", activeRing: "#…", lanes: [...], pins: [...]}. */
export function palette(element) {
  const style = getComputedStyle(element);
  const colours = {};
  for (const name of NAMES)
    colours[name.replace(/-(\w)/g, (_, c) => c.toUpperCase())] = style.getPropertyValue(`--sl-${name}`).trim();
  colours.lanes = Array.from({ length: LANE_COLOURS }, (_, i) => style.getPropertyValue(`--sl-lane-${i + 1}`).trim());
  colours.pins = Array.from({ length: PIN_COLOURS }, (_, i) => style.getPropertyValue(`--sl-pin-${i + 1}`).trim());
  return colours;
}

/** Calls back when body.dark, the system's scheme or its motion preference changes. Returns a function that stops it. */
export function onThemeChange(callback) {
  const observer = new MutationObserver(callback);
  observer.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  const queries = ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)"].map((q) => matchMedia(q));
  for (const query of queries) query.addEventListener("change", callback);
  return () => {
    observer.disconnect();
    for (const query of queries) query.removeEventListener("change", callback);
  };
}
