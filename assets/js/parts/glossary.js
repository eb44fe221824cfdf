// A part of the page that comes when it is needed, see stage/part.js. What is there before is not in it again.

import "./core.js";

export { closeTip, closeTipSoon, explain } from "../panels/glossary.js";
