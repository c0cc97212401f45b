import assert from "node:assert/strict";
import { test } from "node:test";
import { host } from "./support.mjs";

let sdk, mock;
try {
  sdk = await import("ai");
  mock = await import("ai/test");
} catch {
  console.log("SKIPPED: the Vercel AI SDK is not installed");
}
const skip = sdk === undefined ? "the Vercel AI SDK is not installed" : false;

/** What providers require of a prompt: each result follows its call, and each call has its result. */
function assertValid(prompt) {
  const open = new Set();
  for (const { role, content } of prompt) {
    if (role !== "tool") assert.equal(open.size, 0, "a call without its result");
    for (const part of Array.isArray(content) ? content : []) {
      if (part.type === "tool-call") open.add(part.toolCallId);
      if (part.type === "tool-result") assert.ok(open.delete(part.toolCallId), "a result without its call");
    }
  }
  assert.equal(open.size, 0, "a call without its result");
}

for (const isStream of [false, true]) {
  test(`a loop of sixty steps stays in its window (${isStream ? "stream" : "generate"})`, { skip }, async () => {
    const { contextMiddleware, contextTools } = await import("contexture/ai-sdk");
    const session = await host().session("loop", { model: "gpt-4o", contextLength: 16_000, engine: "lcm" });
    const prompts = [];
    // Two calls in each step, whose results the SDK puts into one message.
    const step = ({ prompt }) => {
      prompts.push(prompt);
      const number = prompts.length;
      const usage = { inputTokens: { total: Math.round(JSON.stringify(prompt).length / 4) }, outputTokens: { total: 20 } };
      if (number > 60) return { content: [{ type: "text", text: "Done." }], finishReason: { unified: "stop" }, usage, warnings: [] };
      const call = (toolCallId, part) => ({ type: "tool-call", toolCallId, toolName: "read", input: JSON.stringify({ part }) });
      const content = [{ type: "text", text: `Now part ${number}.` }, call(`a${number}`, number), call(`b${number}`, number + 1000)];
      return { content, finishReason: { unified: "tool-calls" }, usage, warnings: [] };
    };
    const streamed = (options) => {
      const { content, finishReason, usage } = step(options);
      const parts = content.flatMap((part, at) => {
        const id = String(at);
        return part.type === "text" ? [{ type: "text-start", id }, { type: "text-delta", id, delta: part.text }, { type: "text-end", id }] : [part];
      });
      return { stream: sdk.simulateReadableStream({ chunks: [{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason, usage }] }) };
    };
    const turns = [];
    const middleware = contextMiddleware(session, { onTurn: (turn) => turns.push(turn.report) });
    const model = sdk.wrapLanguageModel({ model: new mock.MockLanguageModelV4({ doGenerate: async (options) => step(options), doStream: async (options) => streamed(options) }), middleware });
    const read = sdk.tool({
      inputSchema: sdk.jsonSchema({ type: "object", properties: { part: { type: "number" } } }),
      execute: ({ part }) => `part ${part} is long and dull; `.repeat(40),
    });
    const options = { model, system: "Be brief.", prompt: "Please look at every part.", tools: { read, ...(await contextTools(session)) }, stopWhen: sdk.stepCountIs(100) };
    const result = isStream ? sdk.streamText(options) : await sdk.generateText(options);
    assert.equal(await result.text, "Done.");

    assert.equal(prompts.length, 61);
    assert.ok(turns.filter((turn) => turn.compaction?.outcome === "compacted").length >= 2);
    for (const prompt of prompts) {
      assertValid(prompt);
      assert.ok(prompt.some(({ role, content }) => role === "user" && content[0].text === "Please look at every part."));
      const size = JSON.stringify(prompt).length / 4;
      assert.ok(size < 16_000, `${size}`);
    }
    assert.match(prompts.at(-1)[0].content, /^Be brief\./);
    // Nothing is lost: what left the window is found.
    for (const part of [1, 30, 1002]) {
      assert.match(await session.callTool("lcm_grep", { pattern: `part ${part} is long` }), new RegExp(`part ${part} is long`));
    }
    assert.ok((await session.status()).window.reported_tokens > 0);
    await session.close();
  });
}
