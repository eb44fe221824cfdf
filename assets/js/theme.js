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

/** A colour as #rrggbb: forced colours are names of the system's, which may be translucent. */
function plain(colour) {
  if (colour.startsWith("#") || !colour) return colour;
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  for (const shade of ["Canvas", colour]) {
    pen.fillStyle = shade;
    pen.fillRect(0, 0, 1, 1);
  }
  return `#${[...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)].map((x) => x.toString(16).padStart(2, "0")).join("")}`;
}

/** The palette in force at `element`: {masked: "#…", activeRing: "#…", lanes: [...], pins: [...]}. */
export function palette(element) {
  const style = getComputedStyle(element);
  const read = (name) => plain(style.getPropertyValue(`--sl-${name}`).trim());
  const colours = {};
  for (const name of NAMES) colours[name.replace(/-(\w)/g, (_, c) => c.toUpperCase())] = read(name);
  colours.lanes = Array.from({ length: LANE_COLOURS }, (_, i) => read(`lane-${i + 1}`));
  colours.pins = Array.from({ length: PIN_COLOURS }, (_, i) => read(`pin-${i + 1}`));
  return colours;
}

/** Calls back when body.dark, the system's scheme, its forced colours or its motion preference change. Returns a function that stops it. */
export function onThemeChange(callback) {
  const observer = new MutationObserver(callback);
  observer.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  const queries = ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)", "(forced-colors: active)"].map(
    (q) => matchMedia(q),
  );
  for (const query of queries) query.addEventListener("change", callback);
  return () => {
    observer.disconnect();
    for (const query of queries) query.removeEventListener("change", callback);
  };
}
