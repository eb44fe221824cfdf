// The part that reads traces from elsewhere, see trace/reading.js.

import "../core.js";

export { readTrace } from "../trace/reading.js";
