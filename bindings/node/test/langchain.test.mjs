import assert from "node:assert/strict";
import { test } from "node:test";
import { MODEL, SYSTEM, TASK, WINDOW, check, provider, shell, unbuilt } from "./provider.mjs";
import { host } from "./support.mjs";

let langchain, messages, fakes, openai, anthropic, checkpoint;
try {
  langchain = await import("langchain");
  messages = await import("@langchain/core/messages");
  fakes = await import("@langchain/core/utils/testing");
  openai = await import("@langchain/openai");
  anthropic = await import("@langchain/anthropic");
  checkpoint = await import("@langchain/langgraph");
} catch {
  console.log("SKIPPED: LangChain is not installed");
}
const skip = langchain === undefined ? "LangChain is not installed" : unbuilt;

const chat = (url, options) => new openai.ChatOpenAI({ model: MODEL, apiKey: "none", maxRetries: 0, configuration: { baseURL: `${url}/v1` }, ...options });
// Without these, the client leaves out the reasoning that belongs to a call.
const responses = { useResponsesApi: true, zdrEnabled: true, include: ["reasoning.encrypted_content"] };
const claude = (url, options) =>
  new anthropic.ChatAnthropic({
    model: "claude-opus-4-5",
    apiKey: "none",
    maxRetries: 0,
    anthropicApiUrl: url,
    maxTokens: 2000,
    thinking: { type: "enabled", budget_tokens: 1024 },
    ...options,
  });

const CASES = [
  ["chat completions", chat, {}, "folded", false],
  ["chat completions", chat, {}, "own", true],
  ["the Responses API", chat, responses, "own", false],
  ["the Responses API", chat, responses, "folded", true],
  ["the Messages API", claude, {}, "own", false],
  ["the Messages API", claude, {}, "folded", true],
];

/** A host, and a list of the sessions that it opens. */
function watched() {
  const opened = host();
  const open = opened.session.bind(opened);
  const sessions = [];
  opened.session = async (...args) => {
    sessions.push(await open(...args));
    return sessions.at(-1);
  };
  return { opened, sessions };
}

/** Runs an agent and returns its last state. If it streams, the model's answers come in pieces. */
async function run(agent, state, config, isStream) {
  if (!isStream) return agent.invoke(state, config);
  let last;
  for await (const [mode, value] of await agent.stream(state, { ...config, streamMode: ["messages", "values"] })) if (mode === "values") last = value;
  return last;
}

for (const [name, modelAt, client, summaries, isStream] of CASES) {
  test(`an agent of sixty rounds stays in its window (${name}${isStream ? ", streamed" : ""})`, { skip }, async () => {
    const { contextMiddleware } = await import("contexture/langchain");
    const simulator = await provider();
    try {
      const [calls, turns] = [[], []];
      const bash = langchain.tool(({ command }) => shell(calls, command), {
        name: "bash",
        description: "Runs a command.",
        schema: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
      });
      const { opened, sessions } = watched();
      const options = { model: MODEL, contextLength: WINDOW, engine: "lcm", summaries, onTurn: (turn) => turns.push(turn.report) };
      const middleware = await contextMiddleware(opened, options);
      const agent = langchain.createAgent({
        model: modelAt(simulator.url, client),
        tools: [bash],
        systemPrompt: SYSTEM,
        middleware: [middleware],
        checkpointer: new checkpoint.MemorySaver(),
      });
      const config = { configurable: { thread_id: "harbour" }, recursionLimit: 500 };
      const state = await run(agent, { messages: [{ role: "user", content: TASK }] }, config, isStream);
      assert.deepEqual(sessions.map(({ id }) => id), ["harbour"]);
      await check(simulator, sessions[0], state.messages.at(-1).text, calls, turns);
      await middleware.close();
      // The state has all of it.
      assert.equal(state.messages.filter((message) => message.type === "tool").length, calls.length + 3);
    } finally {
      simulator.close();
    }
  });
}

test("each thread has a session of its own, of which the last ones stay open", { skip }, async () => {
  const { contextMiddleware } = await import("contexture/langchain");
  const { opened, sessions } = watched();
  const options = { model: MODEL, contextLength: WINDOW, engine: "compressor" };
  const middleware = await contextMiddleware(opened, { ...options, agent: "clerk" });
  const agent = langchain.createAgent({ model: new fakes.FakeListChatModel({ responses: ["Fine."] }), tools: [], middleware: [middleware] });
  const ask = (number) => agent.invoke({ messages: [{ role: "user", content: `Question ${number}` }] }, { configurable: { thread_id: `t${number}` } });
  const numbers = [...Array(40).keys()];
  await Promise.all(numbers.map(ask));
  assert.deepEqual(sessions.map(({ id }) => id).sort(), numbers.map((number) => `t${number}/clerk`).sort());
  const isOpen = (session) => session.status().then(() => true, () => false);
  const open = async () => (await Promise.all(sessions.map(isOpen))).filter(Boolean).length;
  assert.equal(await open(), 32);
  // A closed one is opened again, and knows its conversation.
  for (const number of numbers) await ask(number);
  assert.equal(await open(), 32);
  await middleware.close();
  assert.equal(await open(), 0);
  const again = await opened.session("t7/clerk", options);
  const turn = await again.turn([{ role: "user", content: "Question 7" }, { role: "assistant", content: "Fine." }, { role: "user", content: "And?" }]);
  assert.deepEqual([turn.report.new, turn.report.branched], [1, false]);
  await again.close();
  await assert.rejects(agent.invoke({ messages: [{ role: "user", content: "Hello" }] }), /the agent has no thread/);
});

test("a message that a session changed keeps its signed thinking and its pictures", { skip }, async () => {
  const { contextMiddleware } = await import("contexture/langchain");
  const thinking = { type: "thinking", thinking: "Hm.", signature: "signed" };
  const call = { type: "tool_use", id: "a", name: "bash", input: { command: "ls" } };
  const picture = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };
  const sound = { type: "audio", mimeType: "audio/wav", data: "AAAA" };
  const asked = new messages.HumanMessage({ content: [{ type: "text", text: "What is this?" }, picture, sound] });
  const answered = (content) => new messages.AIMessageChunk({ content, tool_calls: [{ type: "tool_call", id: "a", name: "bash", args: { command: "ls" } }] });
  const own = [asked, answered([thinking, { type: "text", text: "Now:" }, call]), answered([thinking, call])];
  // What an engine may do: a summary joins a message, and the arguments of a call are shortened.
  const summary = { type: "text", text: "[summary]" };
  const shortened = (index, message) => {
    const tool_calls = [{ ...message.tool_calls[0], function: { name: "bash", arguments: '{"command":"…"}' } }];
    return { kind: "changed", index, message: { ...message, content: "[summary]", tool_calls } };
  };
  const turn = async ({ messages: [first, ...rest] }) => ({
    changed: true,
    places: [{ kind: "changed", index: 0, message: { ...first, content: [summary, ...first.content] } }, ...rest.map((message, at) => shortened(at + 1, message))],
  });
  const fake = { tools: async () => [], session: async () => ({ turn, answer: async () => {}, close: async () => {} }) };
  const middleware = await contextMiddleware(fake, { model: MODEL, contextLength: WINDOW, sessionId: "harbour" });
  let sent;
  const handler = (request) => (sent = request.messages) && new messages.AIMessage("Fine.");
  await middleware.wrapModelCall({ messages: own, tools: [], systemMessage: new messages.SystemMessage("") }, handler);
  assert.deepEqual(sent[0].content, [summary, ...asked.content]);
  for (const message of sent.slice(1)) {
    assert.deepEqual(message.content, [thinking, summary, { ...call, input: { command: "…" } }]);
    assert.deepEqual(message.tool_calls[0].args, { command: "…" });
    assert.ok(messages.AIMessageChunk.isInstance(message));
  }
  assert.deepEqual(own[1].tool_calls[0].args, { command: "ls" });
});
