import assert from "node:assert/strict";
import test from "node:test";
import { MISSING, Part } from "../../assets/js/stage/part.js";

const missingModule = () => Promise.reject(new TypeError("Failed to fetch dynamically imported module"));

test("a part is fetched once, at its first use, and made once", async () => {
  let fetched = 0;
  let come;
  const coming = new Promise((then) => {
    come = then;
  });
  const load = () => {
    fetched++;
    return coming;
  };
  const part = new Part(
    load,
    ({ name }) => ({ name }),
    () => assert.fail(),
  );
  const told = [];
  assert.equal(fetched, 0);
  const uses = [1, 2].map((press) => part.use(({ name }) => told.push([press, name])));
  assert.deepEqual([part.made, told], [null, []]);
  come({ name: "it" });
  await Promise.all(uses);
  assert.deepEqual(
    told,
    [1, 2].map((press) => [press, "it"]),
  );
  assert.equal(fetched, 1);
  let now = false;
  part.use(() => {
    now = true;
  });
  assert.ok(now, "at once, where it is there");
});

test("a part that does not come is told at every press, and fetched again at the next", async () => {
  assert.match(MISSING, /^The connection was lost/, "a reload would lose the run");
  assert.doesNotMatch(MISSING, /reload/);
  const answers = [missingModule, async () => ({})];
  let missing = 0;
  const part = new Part(
    () => answers.shift()(),
    () => "made",
    () => {
      missing++;
      return "missing";
    },
  );
  const first = [part.use(() => "used"), part.use(() => "used")];
  assert.deepEqual([await Promise.all(first), missing, answers.length], [["missing", "missing"], 2, 1]);
  assert.deepEqual([await part.use((made) => made), missing], ["made", 2]);
});
