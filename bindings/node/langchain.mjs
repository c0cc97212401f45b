// Contexture as a middleware of LangChain's agents (`langchain` 1), which run on LangGraph.
//
//   const middleware = await contextMiddleware(new Host(), { model: "gpt-5.2", contextLength: 400_000, engine: "lcm" });
//   const agent = createAgent({ model, tools, middleware: [middleware], checkpointer });
//   await agent.invoke({ messages }, { configurable: { thread_id: "work" } });
//
// The agent's state keeps the whole conversation, and only what the model sees is compacted. The agent gets the engine's
// tools. Each thread has its own session.
import { AIMessage, HumanMessage, SystemMessage } from "@langchain/core/messages";
import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
import { createMiddleware, tool } from "langchain";
import { callOf, callTool, contentOf, roleOf } from "./adapter.mjs";
import contexture from "./index.cjs";

/** How many sessions stay open between two requests. An open session keeps its messages in memory and holds its lock. */
const KEPT = 32;

const ROLES = { ai: "assistant", system: "system", tool: "tool" };

/** Blocks that repeat a call of `tool_calls`, and the member that has its arguments. */
const CALLS = { tool_use: "input", tool_call: "args" };

/** Blocks that a session does not read, such as signed thinking. They stay in their message. */
const UNREAD = new Set([...Object.keys(CALLS), "function_call", "thinking", "redacted_thinking", "reasoning", "non_standard"]);
const isRead = (block) => !UNREAD.has(block.type);

/** A block as the session reads it. What is neither text nor a picture is known by its kind and size. */
function readBlock(block) {
  if (block.type === "text") return { type: "text", text: block.text };
  return block.type === "image_url" ? block : { type: "text", text: `[${block.type}, ${JSON.stringify(block).length}]` };
}

/** A message in the form of chat completions. */
function chatOf(message) {
  const role = ROLES[message.type] ?? "user";
  const content = Array.isArray(message.content) ? message.content.filter(isRead).map(readBlock) : message.content;
  if (role === "tool") return { role, tool_call_id: message.tool_call_id, content };
  const calls = message.tool_calls ?? [];
  return calls.length > 0 ? { role, content, tool_calls: calls.map(({ id, name, args }) => callOf(id, name, args)) } : { role, content };
}

/** The content of a message with these texts in place of its own. They stand before its calls and after its thinking. */
function withTexts(content, chat) {
  if (!Array.isArray(content)) return chat.content ?? "";
  const own = new Map(content.filter(isRead).map((block) => [JSON.stringify(readBlock(block)), block]));
  const texts = Array.isArray(chat.content) ? chat.content : [{ type: "text", text: chat.content ?? "" }];
  const read = texts.map((block) => own.get(JSON.stringify(block)) ?? block);
  const at = content.findIndex((block) => isRead(block) || block.type in CALLS || block.type === "function_call");
  const [before, after] = at < 0 ? [content, []] : [content.slice(0, at), content.slice(at)];
  return [...before, ...read, ...after.filter((block) => !isRead(block))];
}

/** A message with the content and the arguments of `chat`. Everything else, such as signed thinking, is kept. */
function changed(message, chat) {
  const before = chatOf(message);
  const update = {};
  if (JSON.stringify(chat.content) !== JSON.stringify(before.content)) update.content = withTexts(message.content, chat);
  if (JSON.stringify(chat.tool_calls) !== JSON.stringify(before.tool_calls)) {
    const args = new Map(chat.tool_calls.map((call) => [call.id, JSON.parse(call.function.arguments)]));
    update.tool_calls = message.tool_calls.map((call) => ({ ...call, args: args.get(call.id) }));
    const content = update.content ?? message.content;
    const renewed = (block) => (block.type in CALLS && args.has(block.id) ? { ...block, [CALLS[block.type]]: args.get(block.id) } : block);
    update.content = Array.isArray(content) ? content.map(renewed) : content;
  }
  // The OpenAI Responses client sends what it received as long as it is there.
  if (message.response_metadata?.output) update.response_metadata = { ...message.response_metadata, output: undefined };
  // The constructor of a message that was streamed would read its calls from the pieces again.
  const copy = Object.assign(Object.create(Object.getPrototypeOf(message)), message, update);
  copy.lc_kwargs = { ...message.lc_kwargs, ...update };
  return copy;
}

const added = (chat) => (roleOf(chat) === "assistant" ? new AIMessage(contentOf(chat)) : new HumanMessage(contentOf(chat)));

/** Takes a request in and returns the one to send. */
async function compacted(session, request, onTurn) {
  const own = request.systemMessage?.text ? [request.systemMessage, ...request.messages] : request.messages;
  const turn = await session.turn({ messages: own.map(chatOf), tools: request.tools.map((one) => convertToOpenAITool(one)) });
  onTurn?.(turn);
  if (!turn.changed) return request;
  const messages = turn.places.map((place) => {
    if (place.kind === "added") return added(place.message);
    return place.kind === "changed" ? changed(own[place.index], place.message) : own[place.index];
  });
  return SystemMessage.isInstance(messages[0]) ? { ...request, systemMessage: messages[0], messages: messages.slice(1) } : { ...request, messages };
}

function usageOf({ input_tokens, output_tokens, input_token_details: read, output_token_details: written } = {}) {
  if (!input_tokens) return null;
  return {
    prompt_tokens: input_tokens,
    completion_tokens: output_tokens,
    cache_read_tokens: read?.cache_read ?? 0,
    cache_write_tokens: read?.cache_creation ?? 0,
    reasoning_tokens: written?.reasoning ?? 0,
  };
}

/** The sessions of a host, by id. `using` opens one for as long as `work` runs, and `close` closes those that stay open. */
function sessionsOf(host, options) {
  const kept = new Map();
  const close = async (id) => {
    const { session } = kept.get(id);
    kept.delete(id);
    await (await session).close();
  };
  const using = async (id, work) => {
    const one = kept.get(id) ?? { session: host.session(id, options), works: 0 };
    // The last in the map is the last that was used.
    kept.delete(id);
    kept.set(id, one);
    one.works += 1;
    try {
      return await work(await one.session.catch((error) => (kept.delete(id), Promise.reject(error))));
    } finally {
      one.works -= 1;
      const idle = [...kept].filter(([, { works }]) => works === 0).map(([key]) => key);
      await Promise.all(idle.slice(0, Math.max(kept.size - KEPT, 0)).map(close));
    }
  };
  return { using, close: () => Promise.all([...kept.keys()].map(close)) };
}

/** A middleware that keeps each thread of an agent inside the window. `onTurn` is told what each turn did. */
export async function contextMiddleware(host, { sessionId, agent, onTurn, ...options }) {
  const { using, close } = sessionsOf(host, { summaries: "folded", ...options });
  const idOf = ({ configurable } = {}) => {
    const id = sessionId ?? configurable?.thread_id;
    if (!id) throw new contexture.ArgumentError("the agent has no thread: pass `configurable: { thread_id }` to it, or `sessionId` to the middleware");
    return agent ? `${id}/${agent}` : id;
  };
  const tools = (await host.tools(options.engine)).map(({ function: { name, description, parameters } }) =>
    tool((args, config) => using(idOf(config), (session) => callTool(session, name, args)), { name, description, schema: parameters }),
  );
  const wrapModelCall = (request, handler) =>
    using(idOf(request.runtime), async (session) => {
      const answer = await handler(await compacted(session, request, onTurn));
      if (AIMessage.isInstance(answer)) {
        // No reason to lose an answer that was paid for. It comes again with the next request.
        const failed = (error) => process.emitWarning(`contexture did not read an answer: ${error.message}`);
        await session.answer(chatOf(answer), usageOf(answer.usage_metadata)).catch(failed);
      }
      return answer;
    });
  return { ...createMiddleware({ name: "Contexture", tools, wrapModelCall }), close };
}
