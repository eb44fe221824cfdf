import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";
import { Script } from "node:vm";

const folder = new URL("../../assets/js/load/", import.meta.url);

test("what Gradio evaluates inside a function can stand in one", () => {
  for (const name of readdirSync(folder)) {
    const body = readFileSync(new URL(name, folder), "utf8");
    assert.doesNotThrow(() => new Script(`async () => {${body}\n}`), name);
  }
});
