// Of each JavaScript file named in the arguments all of Stryker's mutants, as one JSON list on the standard output.
// argv: the folder that Stryker is installed in, then the files. Texts are left alone, as the Python operators do.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, ...names] = process.argv.slice(2);
const found = createRequire(`${folder}/x.js`).resolve("@stryker-mutator/instrumenter");
const { createInstrumenter } = await import(pathToFileURL(found).href);
const logger = { debug() {}, info() {}, warn() {}, isDebugEnabled: () => false };
const given = {};
const injector = {
  provideValue(name, value) {
    given[name] = value;
    return this;
  },
  injectClass: (Class) => new Class(logger, ...Class.inject.slice(1).map((name) => given[name])),
};
const files = names.map((name) => ({ name, mutate: true, content: readFileSync(name, "utf-8") }));
const options = { excludedMutations: ["StringLiteral", "Regex"], ignorers: [], plugins: null };
const { mutants } = await createInstrumenter(injector).instrument(files, options);
process.stdout.write(JSON.stringify(mutants.filter((mutant) => mutant.status !== "Ignored")));
