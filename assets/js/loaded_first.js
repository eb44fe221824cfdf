// The modules that are loaded before any part of the page. A part that imports this file does not contain them again.

import "./stage/stage.js";
import "./run/address.js";
import "./run/files.js";
import "./run/tab.js";
import "./run/visit.js";
import "./decode/store.js";
import "./trace/blanks.js";
import "./trace/trace.js";
