// Loads the native part of the package.
"use strict";

const file = `./contexture.${process.platform}-${process.arch}.node`;
try {
  module.exports = require(file);
} catch (error) {
  const text = `the native part of contexture cannot be loaded (${error.message}): run \`npm rebuild contexture\``;
  throw new Error(text, { cause: error });
}
