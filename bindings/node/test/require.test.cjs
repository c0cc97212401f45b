"use strict";
const assert = require("node:assert/strict");
const { test } = require("node:test");

test("`require` and `import` give the same", async () => {
  const required = require("contexture");
  const imported = await import("contexture");
  assert.deepEqual(Object.keys(required).sort(), Object.keys(imported).filter((name) => name !== "default").sort());
  assert.equal(required.Host, imported.Host);
});
