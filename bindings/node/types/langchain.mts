// Compiled, and not run: the middleware has the types that LangChain asks for.
import { Host } from "contexture";
import { contextMiddleware } from "contexture/langchain";
import { type AgentMiddleware, createAgent, tool } from "langchain";

const middleware = await contextMiddleware(new Host(), {
  model: "gpt-5.2",
  contextLength: 400_000,
  engine: "lcm",
  onTurn: (turn) => console.log(turn.report.compaction),
});
export const one: AgentMiddleware = middleware;
const now = tool(() => "noon", { name: "now", description: "Tells the time.", schema: { type: "object", properties: {} } });
const agent = createAgent({ model: "openai:gpt-5.2", tools: [now], middleware: [middleware] });
const state = await agent.invoke({ messages: [{ role: "user", content: "Hello" }] }, { configurable: { thread_id: "work" } });
export const said: string | undefined = state.messages.at(-1)?.text;
await middleware.close();
// @ts-expect-error: the middleware passes on messages in one form.
await contextMiddleware(new Host(), { model: "gpt-5.2", contextLength: 400_000, format: "anthropic" });
