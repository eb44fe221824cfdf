// The check of a trace's structure for the browser, compiled by Ajv from the schema that Python reads. `npm run schema`
// writes it anew; a test holds the file against the schema.

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import Ajv from "ajv/dist/2020.js";
import standalone from "ajv/dist/standalone/index.js";

const root = new URL("../../", import.meta.url);
export const CHECK = new URL("assets/js/trace/check_trace.js", root);

/** The module's text. */
export function make() {
  const schema = JSON.parse(readFileSync(new URL("surelock/trace/schema.json", root), "utf-8"));
  const ajv = new Ajv({ code: { source: true, esm: true }, strict: false, validateFormats: false });
  // A module is strict by itself, and exports by name, as all of the page's do.
  const code = standalone(ajv, ajv.compile(schema))
    .replace('"use strict";', "")
    .replace(/export default \w+;/, "");
  return `// Made from surelock/trace/schema.json by \`npm run schema\`: do not edit.\n${code}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(CHECK, make());
