// A long coding session with the provider simulator, for the tests of the adapters for agent frameworks.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export const SYSTEM = "You are a careful coder. You check every module.";
export const TASK = "Check all modules of the harbour, one after another.";
export const MODEL = "gpt-5.2";
/** What the agent's window is said to have. */
export const WINDOW = 14_000;
const REAL_WINDOW = 16_000;
const ROUNDS = 60;
/** Said once, in the middle of the first result of a tool. */
const FACT = "warning: the lighthouse keeper's code is 4711-heron";

const repository = process.env.CONTEXTURE_REPOSITORY;
const simulator = repository && join(process.env.CARGO_TARGET_DIR ?? join(repository, "target"), "debug/contexture-provider-simulator");
export const unbuilt = simulator && existsSync(simulator) ? false : "CONTEXTURE_REPOSITORY names no checkout in which `cargo build --workspace` ran";

/** The result of a command: some 2,500 bytes, and different each time. */
export function shell(calls, command) {
  calls.push(command);
  const at = calls.length;
  const line = (number) => `src/module_${at}.rs:${number}: warning: value ${at * 7919 + number * 104729} is never read`;
  const lines = [...Array(36).keys()].map(line);
  if (at === 1) lines[17] = FACT;
  return lines.join("\n");
}

/** A provider simulator in a process of its own, with a model that makes sixty rounds of calls. */
export async function provider() {
  const folder = mkdtempSync(join(tmpdir(), "contexture-provider-"));
  const search = ["--also", "20", "lcm_grep", JSON.stringify({ pattern: "4711-heron" })];
  const args = ["0", String(REAL_WINDOW), "--rounds", String(ROUNDS), ...search, "--record", folder];
  const child = spawn(simulator, args, { stdio: ["ignore", "pipe", "ignore"] });
  const url = await new Promise((resolve) => child.stdout.once("data", (line) => resolve(String(line).trim())));
  const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
  return {
    url,
    /** What became of the requests. It is written a moment after each of them. */
    async report() {
      for (let tries = 0; tries < 200; tries++) {
        await sleep(50);
        const report = existsSync(join(folder, "report.json")) ? read("report.json") : {};
        const [number, words] = report.said?.at(-1) ?? [];
        if (number === report.requests?.length - 1 && words === report.last_words) return report;
      }
      assert.fail("the model did not finish");
    },
    /** All requests that came. */
    bodies() {
      const numbers = readdirSync(folder).map((name) => parseInt(name)).filter((number) => !Number.isNaN(number));
      return numbers.sort((one, other) => one - other).map((number) => read(`${number}.json`));
    },
    close: () => child.kill(),
  };
}

/** Checks a session that has ended: the last answer, what the provider saw, and that nothing is lost. */
export async function check(provider, session, said, calls, turns) {
  const report = await provider.report();
  assert.equal(said, report.last_words);
  assert.deepEqual([report.violations, report.overflows], [[], []]);
  assert.equal(report.requests.length, ROUNDS + 1);
  // Each fifth round has two calls.
  assert.equal(calls.length, ROUNDS + ROUNDS / 5);
  assert.equal(new Set(calls).size, calls.length);
  assert.ok(Math.max(...report.requests.map(({ tokens }) => tokens)) < REAL_WINDOW);

  const bodies = provider.bodies();
  for (const body of bodies) {
    assert.ok(JSON.stringify(systemOf(body)).includes(SYSTEM));
    assert.ok(JSON.stringify(itemsOf(body)).includes(TASK));
  }
  // The fact left the window, and each of the model's own calls found it again.
  const numbers = [...bodies.keys()];
  const without = numbers.filter((at) => !JSON.stringify(bodies[at]).includes(FACT));
  assert.deepEqual(without.filter((at) => [19, 39, 59].includes(at)), [19, 39, 59]);
  assert.deepEqual(numbers.filter((at) => JSON.stringify(itemsOf(bodies[at]).at(-1)).includes("4711-heron")), [1, 20, 40, 60]);
  assert.match(await session.callTool("lcm_grep", { pattern: "heron" }), /4711-heron/);

  // What comes back with the next request is known: the answer as it was shown, and the history as it was.
  assert.equal(turns.reduce((sum, turn) => sum + turn.new, 0), 1 + calls.length + 3);
  assert.ok(turns.every((turn) => !turn.branched && turn.revised === 0 && turn.warnings.length === 0), JSON.stringify(turns.at(-1)));
  // Between two compactions a request begins with the last one, so that the provider's prompt cache holds.
  const { compactions, reported_tokens } = (await session.status()).window;
  const items = bodies.map((body) => itemsOf(body).map((item) => JSON.stringify(item)));
  const rewritten = numbers.slice(1).filter((at) => items[at - 1].some((item, place) => items[at][place] !== item));
  assert.ok(compactions > 1 && rewritten.length === compactions, `${rewritten.length} rewritten, ${compactions} compactions`);
  assert.ok(reported_tokens > 0);
}

const systemOf = (body) => body.system ?? body.instructions ?? (body.messages ?? body.input)[0];

/** What a request has. Of the Messages API, one block at a time, and without the markers of its cache. */
function itemsOf(body) {
  if (body.system === undefined) return body.messages ?? body.input;
  const blocks = ({ content }) => (typeof content === "string" ? [{ type: "text", text: content }] : content);
  return body.messages.flatMap((message) => blocks(message).map(({ cache_control, ...block }) => ({ role: message.role, ...block })));
}
