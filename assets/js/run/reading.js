// The part of the page that reads traces from elsewhere, see trace/reading.js.

import "../loaded_first.js";

export { readTrace } from "../trace/reading.js";
