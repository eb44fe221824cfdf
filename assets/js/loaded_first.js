// What is there before any part comes: a part that imports it holds nothing of it again.

import "./stage/stage.js";
import "./run/address.js";
import "./run/files.js";
import "./run/tab.js";
import "./run/visit.js";
import "./decode/store.js";
import "./trace/blanks.js";
import "./trace/trace.js";
