// Works with the gateway's page in a real Chromium as an operator does: `node dashboard.cjs http://127.0.0.1:PORT`, for a
// gateway that gateway/tests/dashboard.rs filled. `CHROMIUM` names the browser. Needs playwright-core and axe-core in
// NODE_PATH.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");

const base = process.argv[2];
const pictures = process.env.CONTEXTURE_SCREENSHOTS;
const axe = require.resolve("axe-core/axe.min.js");
const session = id => `${base}/#/session/${encodeURIComponent(id)}`;
const names = page => page.locator("a.session").allTextContents();

/** Waits until the sessions of the list are these, because the gateway filters and sorts. */
async function shows(page, wanted) {
  for (let tries = 0; tries < 100 && JSON.stringify(await names(page)) !== JSON.stringify(wanted); tries++) await page.waitForTimeout(20);
  assert.deepEqual(await names(page), wanted);
}

/** The page has no fault that axe-core knows. */
async function isAccessible(page, name) {
  if (pictures) await page.screenshot({ path: path.join(pictures, `${name}.png`), fullPage: true });
  // The page runs no script but its own, so axe-core is added by the debugger.
  await page.evaluate(fs.readFileSync(axe, "utf8"));
  const { violations } = await page.evaluate(() => window.axe.run());
  const told = violations.map(one => `${one.id}: ${one.nodes.map(node => node.target).join(", ")}`);
  assert.deepEqual(told, [], name);
  const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide[0] <= wide[1], `${name} is ${wide[0]} pixels wide in a window of ${wide[1]}`);
  assert.doesNotMatch(await page.title() + await page.textContent("main"), /[\u202e\u001b]/, name);
}

async function downloaded(page, click) {
  const [download] = await Promise.all([page.waitForEvent("download"), click()]);
  return { name: download.suggestedFilename(), text: fs.readFileSync(await download.path(), "utf8") };
}

async function start(page) {
  await page.goto(`${base}/`);
  await page.waitForSelector("a.session");
  const figures = await page.locator("[data-part=figures] .figure").allTextContents();
  const figure = name => figures.find(text => text.startsWith(name)) ?? assert.fail(`no ${name} in ${figures}`);
  assert.match(figure("Sessions"), /^Sessions3/);
  assert.match(figure("Tokens"), /\d+K/);
  assert.match(figure("Cost"), /\$0\.\d/);
  assert.match(figure("Cache hit rate"), /[1-9]\d %/);
  assert.match(figure("Compactions"), /^Compactions[1-9]/);
  assert.match(figure("Health"), /good.*2 failed requests/);
  const text = await page.textContent("main");
  // What is not managed and why, what failed, and whose price is not known.
  for (const part of ["side call", "requests apart from the conversation", "Rate limit", "broke off", "qwen3-coder: set prices.models"]) assert.ok(text.includes(part), part);
  assert.equal(await page.locator("[data-part=trend] svg rect").count() > 0, true);
  await page.selectOption("[aria-label='Figure over time']", "Cache hit rate");
  assert.match(await page.getAttribute("[data-part=trend] svg", "aria-label"), /^Cache hit rate for each day/);
  // Text that is HTML stays text.
  assert.equal(await page.title(), "Contexture");
  assert.ok((await names(page)).some(name => name.startsWith("</script><script>") && name.includes("'taken\\u202e\\u001b'")));
}

async function filterAndSort(page) {
  const windows = "Why does the build of the API fail on Windows?", all = await names(page);
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "search");
  await page.keyboard.type("windows codex");
  await shows(page, [windows]);
  await page.fill("#search", "");
  await shows(page, all);
  await page.selectOption("[aria-label=Agent]", "claude-code");
  await shows(page, all.filter(name => name.startsWith("</script>")));
  await page.selectOption("[aria-label=Agent]", "");
  await shows(page, all);
  const turns = page.getByRole("button", { name: /^Turns/ });
  const shown = async () => (await page.locator("[data-part=sessions] tbody td:nth-child(5)").allTextContents()).map(Number);
  const sorted = direction => page.waitForSelector(`th[aria-sort=${direction}]:has(button:text-matches('^Turns'))`);
  await turns.press("Enter");
  await sorted("descending");
  const falling = await shown();
  assert.deepEqual(falling, [...falling].sort((a, b) => b - a));
  // The button keeps the focus, although the table is a new one.
  await page.keyboard.press("Enter");
  await sorted("ascending");
  assert.deepEqual(await shown(), falling.reverse());
  const { name, text } = await downloaded(page, () => page.getByRole("button", { name: "Download the sessions as CSV" }).click());
  const lines = text.trim().split("\r\n");
  assert.equal(name, "the sessions.csv");
  assert.ok(lines.length === 4 && lines[0].startsWith("Session,id,Agent,Model,Project,Turns,Tokens"), text);
  const trend = await downloaded(page, () => page.getByRole("button", { name: "Download the trend as CSV" }).click());
  assert.match(trend.text, /^from,turns,prompt tokens[^\n]*\r\n\d{4}-\d\d-\d\dT/);
}

async function keyboard(page) {
  await page.focus("#search");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  const focused = await page.evaluate(() => document.activeElement.textContent);
  assert.equal(focused, (await names(page))[1]);
  await page.keyboard.press("Enter");
  await page.waitForSelector("[data-part=chart] svg");
  assert.equal(await page.textContent("h2"), focused);
  assert.ok(page.url().includes("#/session/"), page.url());
  await page.goBack();
  await page.waitForSelector("a.session");
}

async function oneSession(page) {
  // The address of a session leads to it.
  await page.goto(session("release notes/1"));
  await page.waitForSelector("[data-part=chart] svg");
  assert.match(await page.title(), /^<\/script>/);
  const label = await page.getAttribute("[data-part=chart] svg", "aria-label");
  assert.match(label, /^Prompt tokens of 41 turns, from .* with [1-9]\d* compactions/);
  const axis = await page.locator("[data-part=chart] svg text").allTextContents();
  assert.ok(axis.some(text => /\d:\d\d|^[A-Z][a-z]+ \d+$/.test(text)), `no times in ${axis}`);
  // The trigger is the engine's own: half of a window of 24,000.
  assert.match(await page.textContent("[data-part=chart] .legend"), /the engine compacts from 12,000 tokens/);
  const group = page.locator("[data-part=compactions] > details");
  assert.match(await group.locator("> summary").textContent(), /^The engine decided \(lcm\): [1-9]\d* compactions, \d+K tokens removed/);
  await group.locator("> summary").press("Enter");
  await group.locator("details > summary").first().press("Enter");
  assert.match(await group.locator("details[open]").first().textContent(), /a compaction is due from 12,000/);
  // A refresh leaves open what is open.
  await page.waitForTimeout(5500);
  assert.ok(await group.locator("details[open]").count() >= 1);
  const rows = page.locator("[data-part=requests] tbody tr");
  assert.equal(await rows.count(), 41);
  const { text } = await downloaded(page, () => page.getByRole("button", { name: "Download the requests as CSV" }).click());
  assert.equal(text.trim().split("\r\n").length, 42);
  assert.match(text, /^When,Turn,Result,error,Total,First byte,Held,Model,Prompt/);

  await page.keyboard.press("/");
  await page.keyboard.type("release notes");
  await page.keyboard.press("Enter");
  await page.waitForSelector("article");
  const hit = page.locator("article").first();
  assert.equal(await hit.locator("mark").first().textContent(), "release notes");
  assert.match(await hit.textContent(), /^user/);
  await hit.locator("summary").click();
  await hit.locator("details pre").waitFor();
  const whole = await hit.locator("details pre").textContent();
  assert.ok(whole.includes("user: </script><script>document.title") && !whole.includes("{\""), whole);

  await page.goto(session("codex-1"));
  await page.waitForSelector("[data-part=requests] .wrong");
  const failed = await page.locator("[data-part=requests] tr:has(.wrong)").allTextContents();
  assert.ok(failed.length === 2 && failed.some(text => /status 429.*Rate limit/.test(text)), failed.join("\n"));
}

async function change(page) {
  await page.goto(session("notes"));
  await page.getByRole("button", { name: "Rename" }).click();
  await isAccessible(page, "rename");
  await page.keyboard.type("Poems");
  await page.keyboard.press("Enter");
  await page.locator("h2:text-is('Poems')").waitFor();
  const { name, text } = await downloaded(page, () => page.getByRole("button", { name: "Export messages" }).click());
  assert.equal(name, "notes.jsonl");
  assert.equal(JSON.parse(text.split("\n")[0]).role, "user");
  // Nothing is deleted without a confirmation.
  await page.getByRole("button", { name: "Delete" }).click();
  await page.keyboard.press("Escape");
  await page.reload();
  await page.locator("h2:text-is('Poems')").waitFor();
  await page.getByRole("button", { name: "Delete" }).click();
  assert.match(await page.textContent("dialog"), /“Poems” and everything that is stored of it/);
  await page.locator("dialog").getByRole("button", { name: "Delete" }).click();
  await page.waitForSelector("a.session");
  assert.equal((await names(page)).length, 2);
  assert.ok(!(await names(page)).includes("Poems"));
}

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
  try {
    for (const [name, width, colorScheme] of [["wide", 1280, "light"], ["narrow", 360, "light"], ["dark", 1280, "dark"]]) {
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
      const page = await context.newPage();
      const faults = [];
      page.on("pageerror", error => faults.push(error.message));
      page.on("console", message => message.type() === "error" && faults.push(message.text()));
      page.on("request", request => request.url().startsWith(base) || request.url().startsWith("blob:") || faults.push(`loads ${request.url()}`));
      await page.goto(`${base}/`);
      await page.waitForSelector("a.session");
      await isAccessible(page, `start-${name}`);
      for (const id of ["release notes/1", "codex-1"]) {
        await page.goto(session(id));
        await page.waitForSelector("[data-part=chart] svg");
        await page.waitForSelector("[data-part=requests] table");
        await isAccessible(page, `${id.replace(/\W/g, "-")}-${name}`);
      }
      assert.deepEqual(faults, [], name);
      await context.close();
    }
    const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
    for (const step of [start, filterAndSort, keyboard, oneSession, change]) {
      await step(page);
      console.log(step.name);
    }
  } finally {
    await browser.close();
  }
}
main().catch(error => {
  console.error(error);
  process.exit(1);
});
