#!/usr/bin/env node
// The command line: the script `contexture` of an installed package, and `npx contexture`.
"use strict";

const { sep } = require("node:path");
const native = require("./native.cjs");

// What npx installs may be deleted at any time, so the settings of agents name npx itself.
const isFromNpx = __dirname.split(sep).includes("_npx");
const command = isFromNpx ? ["npx", "--yes", "contexture"] : [process.execPath, __filename];
process.exit(native.runCommand(command, process.argv.slice(2)));
