// The command that the package installs.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const installed = realpathSync(join(dirname(fileURLToPath(import.meta.url)), "../node_modules/contexture"));
const { version } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));

/** A home directory with settings of Claude Code, and what runs a command in it. */
function home() {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), "contexture-")));
  mkdirSync(join(folder, ".claude"));
  const settings = join(folder, ".claude/settings.json");
  const before = '{\r\n  "cleanupPeriodDays": 99\r\n}\r\n';
  writeFileSync(settings, before);
  const env = { PATH: `${dirname(process.execPath)}:/usr/bin:/bin`, HOME: folder };
  const run = (program, ...args) => spawnSync(program, args, { env, cwd: folder, encoding: "utf8" });
  return { folder, settings, before, run };
}

test("the command sets up an agent, which can run it, and takes it back", () => {
  const { settings, before, run } = home();
  const contexture = join(installed, "../.bin/contexture");
  assert.equal(run(contexture, "--version").stdout, `contexture ${version}\n`);
  const ran = run(contexture, "setup", "claude", "--yes");
  assert.equal(ran.status, 0, ran.stderr);
  const hooks = Object.values(JSON.parse(readFileSync(settings, "utf8")).hooks).flat().flatMap((one) => one.hooks);
  const [{ command }] = hooks;
  const started = command.slice(0, command.indexOf(" hook claude"));
  assert.equal(run("sh", "-c", `${started} --version`).stdout, `contexture ${version}\n`);
  const undone = run(contexture, "setup", "--undo", "claude", "--yes");
  assert.equal(undone.status, 0, undone.stderr);
  assert.equal(readFileSync(settings, "utf8"), before);
});

test("a usage error exits with 2 and goes to stderr", () => {
  const ran = home().run(join(installed, "../.bin/contexture"), "compress", "--no-such-option");
  assert.equal(ran.status, 2);
  assert.equal(ran.stdout, "");
  assert.match(ran.stderr, /--no-such-option/);
});

test("settings that npx writes name npx, whose folder may be deleted", () => {
  const { folder, settings, run } = home();
  const cached = join(folder, ".npm/_npx/0123456789abcdef/node_modules/contexture");
  mkdirSync(dirname(cached), { recursive: true });
  cpSync(installed, cached, { recursive: true, filter: (path) => !path.endsWith(".node") });
  const native = `contexture.${process.platform}-${process.arch}.node`;
  symlinkSync(join(installed, native), join(cached, native));
  const ran = run(process.execPath, join(cached, "cli.cjs"), "setup", "claude", "--yes");
  assert.equal(ran.status, 0, ran.stderr);
  assert.match(readFileSync(settings, "utf8"), /"'npx' '--yes' 'contexture' hook claude/);
});
