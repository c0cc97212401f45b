import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import * as contexture from "contexture";
import { host, home, talk } from "./support.mjs";

const OPTIONS = { model: "gpt-4o", contextLength: 16_000 };

test("a conversation is compacted, and what is kept is the caller's own", async () => {
  const session = await host().session("work", { ...OPTIONS, engine: "lcm" });
  let messages = [{ role: "system", content: "Be brief." }];
  let compactions = 0;
  for (let number = 0; number < 120; number++) {
    messages.push({ role: "user", content: `Tell me about part ${number}. `.repeat(10) });
    const turn = await session.turn(messages);
    assert.equal(turn.messages.at(-1), messages.at(-1));
    for (const [at, place] of turn.places.entries()) {
      if (place.kind === "kept") assert.equal(turn.messages[at], messages[place.index]);
      else assert.deepEqual(turn.messages[at], place.message);
    }
    assert.equal(turn.changed, turn.places.some((place) => place.kind !== "kept") || turn.places.length !== messages.length);
    if (!turn.changed) assert.equal(turn.body, messages);
    if (turn.report.compaction) compactions += 1;
    messages = turn.messages;
    const answer = { role: "assistant", content: `Part ${number} is as it is. `.repeat(10) };
    await session.answer(answer, { prompt_tokens: 1000 + number, completion_tokens: 80 });
    messages.push(answer);
  }
  assert.ok(compactions > 0 && messages.length < 241, `${compactions} compactions, ${messages.length} messages`);
  assert.equal(await session.engine(), "lcm");
  const tools = await session.tools();
  assert.ok(tools.some((tool) => tool.function.name === "lcm_grep"));
  const found = await session.callTool("lcm_grep", { pattern: "about part 3." });
  assert.match(found, /about part 3\./);
  const status = await session.status();
  assert.equal(status.session, "work");
  assert.equal(status.window.compactions, compactions);
  await session.close();
  await session.close();
});

test("a body keeps its form, and bodies of every format are taken", async () => {
  const opened = host();
  const long = talk(40, 2_000);
  const session = await opened.session("object", OPTIONS);
  const body = { model: "gpt-4o", temperature: 0.5, messages: long };
  const turn = await session.turn(body, { compact: "force" });
  assert.equal(turn.changed, true);
  assert.equal(turn.body.temperature, 0.5);
  assert.equal(body.messages.length, long.length);
  assert.ok(turn.body.messages.length < long.length);
  assert.deepEqual(turn.body.messages, turn.messages);
  assert.match(turn.messages[0].content, /You are a careful programmer\.[^]*compacted/);

  const textual = await opened.session("text", OPTIONS);
  const given = JSON.stringify({ messages: long });
  const compacted = await textual.turn(given, { compact: "force" });
  assert.equal(typeof compacted.body, "string");
  assert.deepEqual(JSON.parse(compacted.body).messages, compacted.messages);
  const same = await textual.turn(compacted.body, { compact: "never" });
  assert.equal(same.body, compacted.body);

  const anthropic = await opened.session("anthropic", { ...OPTIONS, format: "anthropic" });
  const blocks = { model: "claude", system: "Be brief.", max_tokens: 100, messages: [{ role: "user", content: [{ type: "text", text: "Hello" }] }] };
  assert.equal((await anthropic.turn(blocks)).body, blocks);
  await anthropic.answer({ role: "assistant", content: [{ type: "text", text: "Hello!" }] }, { input_tokens: 300, cache_read_input_tokens: 5_000, output_tokens: 2 });
  // Anthropic does not count cached tokens among the input. The answer is added.
  const reported = (await anthropic.status()).window.reported_tokens;
  assert.ok(reported > 5_300 && reported < 5_320, reported);

  // LiteLLM names the same figures and counts the cached tokens among the prompt.
  const lite = await opened.session("lite", OPTIONS);
  await lite.turn([{ role: "user", content: "Hello" }]);
  await lite.answer({ role: "assistant", content: "Hello!" }, { prompt_tokens: 5_300, completion_tokens: 2, cache_read_input_tokens: 5_000 });
  const counted = (await lite.status()).window.reported_tokens;
  assert.ok(counted > 5_300 - 1 && counted < 5_320, counted);
  // The Vercel AI SDK 7.
  await lite.usage({ inputTokens: 6_000, inputTokenDetails: { cacheReadTokens: 5_500, cacheWriteTokens: 0 }, outputTokens: 3, outputTokenDetails: { reasoningTokens: 1 } });

  const responses = await opened.session("responses", { ...OPTIONS, format: "responses" });
  const input = { model: "gpt-5", input: [{ type: "message", role: "user", content: "Hello" }] };
  assert.equal((await responses.turn(input)).body, input);
  await responses.answer([{ type: "message", role: "assistant", content: "Hello!" }], { input_tokens: 3, output_tokens: 2 });

  const gemini = await opened.session("gemini", { ...OPTIONS, format: "gemini" });
  const contents = { systemInstruction: { parts: [{ text: "Be brief." }] }, contents: [{ role: "user", parts: [{ text: "Hello" }] }] };
  assert.equal((await gemini.turn(contents)).body, contents);
  await gemini.answer({ role: "model", parts: [{ text: "Hello!" }] }, { promptTokenCount: 9, candidatesTokenCount: 2 });
});

test("what the agent says in its system prompt stays after a compaction, in every format", async () => {
  const opened = host();
  const said = "Never give doses.";
  const long = (role, parts) => Array.from({ length: 80 }, (_, number) => ({ role: number % 2 ? role : "user", ...parts(`Part ${number}. `.repeat(200)) }));
  const bodies = {
    openai: { messages: [{ role: "system", content: said }, ...long("assistant", (content) => ({ content }))] },
    anthropic: { system: said, messages: long("assistant", (content) => ({ content })) },
    responses: { instructions: said, input: long("assistant", (content) => ({ content })) },
    gemini: { systemInstruction: { parts: [{ text: said }] }, contents: long("model", (text) => ({ parts: [{ text }] })) },
  };
  for (const [format, body] of Object.entries(bodies)) {
    const session = await opened.session(`system-${format}`, { ...OPTIONS, format });
    const turn = await session.turn(body, { compact: "force" });
    assert.equal(turn.changed, true, format);
    assert.ok(JSON.stringify(turn.body).includes(said), format);
    const text = JSON.stringify(body);
    const textual = await (await opened.session(`text-${format}`, { ...OPTIONS, format })).turn(text, { compact: "force" });
    assert.ok(textual.body.includes(said), format);
    assert.ok(textual.messages.length < 80, format);
  }
  const list = JSON.stringify(bodies.openai.messages);
  const turn = await (await opened.session("list", OPTIONS)).turn(list, { compact: "never" });
  assert.deepEqual(turn.messages, bodies.openai.messages);
});

test("a session is continued by its id, and has one holder", async () => {
  const opened = host();
  const one = await opened.session("s", OPTIONS);
  await one.turn([{ role: "user", content: "Hello" }]);
  await one.answer({ role: "assistant", content: "Hello!" });
  await assert.rejects(opened.session("s", { ...OPTIONS, waitMs: 10 }), contexture.SessionInUse);
  await one.close();
  await assert.rejects(one.turn([]), /is closed: open it again/);
  const again = await opened.session("s", OPTIONS);
  const turn = await again.turn([{ role: "user", content: "Hello" }, { role: "assistant", content: "Hello!" }, { role: "user", content: "Go on" }]);
  assert.equal(turn.report.new, 1);
  await again.reset();
  await again.setModel("gpt-5", 200_000);
  assert.equal((await again.preflight(1_000)).compact, false);
  assert.match((await again.preflight(190_000)).reason, /\d/);
});

test("calls are made in the order in which they were asked for", async () => {
  const session = await host().session("s", OPTIONS);
  const messages = [{ role: "user", content: "1" }];
  const first = session.turn(messages);
  const answered = session.answer({ role: "assistant", content: "one" });
  messages.push({ role: "assistant", content: "one" }, { role: "user", content: "2" });
  const second = session.turn(messages);
  await Promise.all([first, answered, second]);
  assert.equal((await second).report.new, 1);
  // The list was changed after the first call, and that call is about what it was.
  assert.equal((await first).messages.length, 1);
});

test("errors have their classes and name what is wrong", async () => {
  const opened = host();
  await assert.rejects(opened.session("s", { ...OPTIONS, modle: 1 }), (error) => {
    assert.ok(error instanceof contexture.ArgumentError && error instanceof contexture.ContextureError);
    assert.equal(error.name, "ArgumentError");
    assert.match(error.message, /unknown field `modle`/);
    return true;
  });
  await assert.rejects(opened.session("s", { ...OPTIONS, engine: "nowhere" }), /there is no engine `nowhere`/);
  const session = await opened.session("s", { ...OPTIONS, engine: "lcm" });
  await assert.rejects(session.turn(7), contexture.FormatError);
  await assert.rejects(session.turn({ input: [] }), /a body with a list `messages`/);
  await assert.rejects(session.turn([], { compact: "often" }), contexture.ArgumentError);
  await assert.rejects(session.answer({ role: "assistant", content: "x" }, { tokens: 5 }), contexture.FormatError);
  await assert.rejects(session.callTool("lcm_grep", { pattern: "(" }), contexture.ToolError);
  assert.throws(() => new contexture.Host({ home: home(), ofline: true }), contexture.ArgumentError);
});

test("pins and the tools of the host", async () => {
  const folder = home();
  writeFileSync(join(folder, "config.yaml"), "compression: {model_tools: true}\n");
  const session = await new contexture.Host({ home: folder, offline: true }).session("s", OPTIONS);
  const long = "and so on ".repeat(60);
  const messages = [...Array(80).keys()].map((n) => ({ role: n % 2 ? "assistant" : "user", content: `${n} ${long}` }));
  messages.push({ role: "user", content: "Go on." });
  await session.turn(messages, { compact: "never" });
  const [first] = await session.tools();
  assert.equal(first.function.name, "context_pin");
  assert.match(await session.callTool("context_pin", { text: "The port is 8123." }), /^Pinned/);
  await assert.rejects(session.callTool("context_unpin", { text: "x" }), contexture.ToolError);
  await session.pin("Use TLS.");
  await session.pin("Over.");
  await session.unpin("Over.");
  await assert.rejects(session.pin("/pin x"), contexture.ToolError);
  const turn = await session.turn(messages, { compact: "force" });
  const window = JSON.stringify(turn.messages);
  for (const words of ["The port is 8123.", "Use TLS."]) assert.ok(window.includes(`- ${words}`), window);
  assert.ok(!window.includes("Over."), window);
  await session.close();
});

test("half a surrogate pair, as cutting a text leaves it, costs nothing", async () => {
  const session = await host().session("s", OPTIONS);
  const cut = { role: "user", content: "a smile \u{1f600} and \\ud83d".slice(0, 9) + " \\ud83d" };
  const turn = await session.turn([cut]);
  assert.equal(turn.messages[0], cut);
  assert.equal(cut.content, "a smile \ud83d \\ud83d");
});

test("a home has one host in a process", async () => {
  const place = home();
  const [one, two] = [new contexture.Host({ home: place, offline: true }), new contexture.Host({ home: place, offline: true })];
  const session = await one.session("s", OPTIONS);
  await assert.rejects(two.session("s", { ...OPTIONS, waitMs: 1 }), contexture.SessionInUse);
  assert.throws(() => new contexture.Host({ home: place }), /with another `config`, `offline` or `model`/);
  await session.close();
  await (await two.session("s", OPTIONS)).close();
});

test("a model of the caller's writes summaries", async () => {
  const asked = [];
  const model = {
    name: "mine",
    contextLength: 100_000,
    async complete(system, prompt, maxTokens) {
      asked.push({ system, prompt, maxTokens });
      return "They looked at every part, and every part was fine.";
    },
  };
  const waits = () => {
    const place = home();
    writeFileSync(join(place, "config.yaml"), "compression: {wait_for_model: true}");
    return place;
  };
  const session = await host({ home: waits(), offline: false, model }).session("s", OPTIONS);
  const turn = await session.turn(talk(40, 2_000), { compact: "force" });
  assert.ok(asked.length > 0 && asked[0].prompt.includes("part 1") && asked[0].maxTokens > 0);
  assert.ok(turn.messages.some((message) => JSON.stringify(message).includes("every part was fine")));

  const cancelled = await host({ home: waits(), offline: false, model }).session("s", OPTIONS);
  cancelled.cancel();
  const before = asked.length;
  await cancelled.turn(talk(40, 2_000), { compact: "force" });
  assert.ok(asked.length > before, "a cancel ends the call in progress, and none was");

  const failing = { name: "mine", contextLength: null, complete: () => Promise.reject(new Error("down on purpose")) };
  const other = await host({ home: waits(), offline: false, model: failing }).session("s", OPTIONS);
  const { report } = await other.turn(talk(40, 2_000), { compact: "force" });
  assert.equal(report.compaction.outcome, "compacted");
  assert.equal(report.compaction.degraded, true);
  assert.match(JSON.stringify(report), /down on purpose/);
});

test("engines, tools, tokens and a replay", async () => {
  const opened = host();
  const engines = opened.engines();
  assert.deepEqual(engines.filter((engine) => engine.chosen).map((engine) => engine.name), ["compressor"]);
  assert.ok(engines.some((engine) => engine.name === "lcm" && engine.source === "registered"));
  assert.ok((await opened.tools("lcm")).length > 0);
  assert.ok(contexture.countTokens("The pump station reported no fault.", "gpt-4o") > 5);
  const report = await opened.replay(talk(60, 2_000), { model: "gpt-4o", contextLength: 16_000, engine: "compressor" });
  assert.deepEqual(report.totals.map((row) => row.engine), ["none", "compressor"]);
  assert.ok(report.totals[0].overflows > 0);
  assert.equal(report.totals[1].overflows, 0);
  const alone = await contexture.replay(talk(3), { model: "gpt-4o", contextLength: 16_000, home: home(), offline: true });
  assert.equal(alone.totals.length, 2);
});
