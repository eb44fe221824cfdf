// Encodes every character of Unicode in the contexts that tell its kind: `node tests/js/every_character.js < INPUT`. The
// input is {json, config, classes}, see TextTokenizer, and {size}: characters to a text. Prints a digest of each text's ids.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { TextTokenizer } from "../../assets/js/decode/tokenizer.js";

const { json, config, classes, size } = JSON.parse(readFileSync(0, "utf8"));
const tokenizer = new TextTokenizer(json, config, classes);
const isHalf = (code) => code >= 0xd800 && code < 0xe000;
const digests = [];
for (let start = 0; start <= 0x10ffff; start += size) {
  const codes = Array.from({ length: size }, (_, i) => start + i).filter((code) => !isHalf(code));
  const inContexts = codes.map((code) => String.fromCodePoint(code)).map((each) => `a${each}1 ${each}!`);
  const ids = tokenizer.encode(inContexts.join(""));
  digests.push(createHash("sha256").update(ids.join(" ")).digest("hex"));
}
console.log(JSON.stringify(digests));
