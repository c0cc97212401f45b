// The examples of docs/node.md that need no provider, as the page shows them.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { home } from "./support.mjs";

const repository = process.env.CONTEXTURE_REPOSITORY;
const skip = repository === undefined ? "CONTEXTURE_REPOSITORY names no checkout" : false;
const page = repository && readFileSync(join(repository, "docs/node.md"), "utf8");

/** Runs the block of the page that has these words, with more lines at its end, and returns what it prints. */
function run(words, more = "") {
  const block = page.split("```js\n").map((part) => part.split("```")[0]).find((part) => part.includes(words));
  const program = join(import.meta.dirname ?? ".", `example-${process.pid}.mjs`);
  writeFileSync(program, block + more);
  const ran = spawnSync(process.execPath, [program], { cwd: repository, encoding: "utf8", env: { ...process.env, CONTEXTURE_HOME: home() } });
  rmSync(program);
  assert.equal(ran.status, 0, ran.stderr);
  return ran.stdout;
}

test("the replay prints what the page says", { skip }, () => {
  assert.equal(run(".replay(log"), page.split("```text\n")[1].split("```")[0]);
});

test("the engine of the page conforms", { skip }, () => {
  assert.match(run("class LastTen", "console.log(held ? 'held' : table);\n"), /^held$/m);
});
