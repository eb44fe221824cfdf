// Encodes texts and shows all pieces: `node tests/js/tokens.js FOLDER`. FOLDER holds a model's tokenizer, the input
// {texts, size, classes} as JSON, with the server's letters and numbers; refused, if there are any: texts whose blanks are
// refused.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { TextTokenizer } from "../../assets/js/decode/tokenizer.js";

const [folder] = process.argv.slice(2);
const read = (...parts) => JSON.parse(readFileSync(join(...parts), "utf8"));
const [json, config] = ["tokenizer.json", "tokenizer_config.json"].map((name) => read(folder, name));
const { texts, size, classes, refused = [] } = JSON.parse(readFileSync(0, "utf8"));
const tokenizer = new TextTokenizer(json, config, classes);
const ids = Array.from({ length: size }, (_, id) => id);
const encoded = {
  ids: texts.map((text) => tokenizer.encode(text)),
  blanks: texts.map((text) => tokenizer.encode(text, 1)),
  lists: texts.map((text) => tokenizer.prompt(text, 1).lists),
  singles: texts.map((text) => tokenizer.single(text, 1) ?? null),
};

/** What is said of a text that is refused. */
function sentenceOf(text) {
  try {
    tokenizer.prompt(text, 1);
  } catch (error) {
    return error.message;
  }
}

const sentences = refused.map(sentenceOf);
console.log(JSON.stringify({ ...encoded, sentences, pieces: tokenizer.pieces(ids) }));
