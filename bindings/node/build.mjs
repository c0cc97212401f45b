// Builds the native part with cargo, in a checkout of the repository, and puts it beside this file.
//
//   node build.mjs                for this machine
//   node build.mjs --dist         what is released: smaller, and slower to build. With cargo-zigbuild, for glibc 2.28 or later
//   node build.mjs --debug        faster to build
//   node build.mjs --if-missing   does nothing if it is there: what `npm install` runs
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, renameSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const native = join(here, `contexture.${process.platform}-${process.arch}.node`);
const manifest = join(here, "Cargo.toml");

if (process.argv.includes("--if-missing") && existsSync(native)) process.exit(0);
if (!existsSync(manifest)) {
  console.error(
    `contexture: the package has no native part for ${process.platform}-${process.arch}.\n` +
      "Install it from a checkout of https://github.com/contexture/contexture: npm install ./bindings/node",
  );
  process.exit(1);
}
const profiles = { "--debug": ["debug"], "--dist": ["dist", "--profile", "dist"] };
const profile = profiles[process.argv[2]] ?? ["release", "--release"];
const cargo = process.env.CARGO ?? "cargo";
// Alone, the package has fewer features of its dependencies than in the workspace, and a checkout that has built the
// workspace would compile them once more.
const what = profile[0] === "debug" ? ["--workspace"] : ["-p", "contexture-node"];
// A release is for older systems than the one that builds it, as the archives of `.ci/archive` are.
const isForOlder = profile[0] === "dist" && process.platform === "linux" && spawnSync("cargo-zigbuild", ["--version"]).status === 0;
const processor = { x64: "x86_64", arm64: "aarch64" }[process.arch];
const build = isForOlder ? ["zigbuild", "--target", `${processor}-unknown-linux-gnu.2.28`] : ["build"];
const args = [...build, "--locked", ...what, "--message-format=json-render-diagnostics", ...profile.slice(1)];
const built = spawnSync(cargo, args, { cwd: here, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], maxBuffer: 1 << 28 });
if (built.error || built.status !== 0) {
  const why = built.error ? `${cargo} cannot be run (${built.error.message})` : "the build failed";
  console.error(`contexture: ${why}. It needs Rust 1.91 or later and a C compiler.`);
  process.exit(1);
}
const library = built.stdout
  .split("\n")
  .filter((line) => line.startsWith("{"))
  .map((line) => JSON.parse(line))
  .filter((message) => message.reason === "compiler-artifact" && message.target.name === "contexture_node")
  .flatMap((message) => message.filenames)
  .find((file) => /\.(so|dylib|dll)$/.test(file));
if (library === undefined) {
  console.error("contexture: cargo built no library");
  process.exit(1);
}
// Replaced as a whole: a running program may have the old one open.
copyFileSync(library, `${native}.new`);
renameSync(`${native}.new`, native);
console.log(`built ${native} (${profile[0]})`);
