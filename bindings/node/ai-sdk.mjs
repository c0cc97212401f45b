// Contexture as a middleware of the Vercel AI SDK (`ai` 7).
//
//   const session = await new Host().session("work", { model: "gpt-4o", contextLength: 128_000, engine: "lcm" });
//   const model = wrapLanguageModel({ model: openai("gpt-4o"), middleware: contextMiddleware(session) });
//   await generateText({ model, tools: { ...own, ...(await contextTools(session)) }, messages, stopWhen });
//
// A message of the SDK may hold several results of tools, which are messages of their own to the session. So each of its
// messages is shown as one or more, and what the session keeps whole is sent as the very message that came.
import { dynamicTool, jsonSchema } from "ai";
import { callOf, callTool, contentOf, roleOf } from "./adapter.mjs";

/** The text of a part: what is no text, such as a file, is known by its kind and size. */
function textOf(part) {
  if (part.type === "text") return part.text;
  const data = typeof part.data === "string" ? part.data : part.data?.data;
  return part.type === "file" ? `[${part.mediaType ?? "file"}, ${data?.length ?? 0}]` : "";
}

const textsOf = (parts) => parts.map(textOf).filter(Boolean).join("\n");

function resultOf({ output }) {
  if (output?.type === "text" || output?.type === "error-text") return output.value;
  if (output?.type === "execution-denied") return `denied: ${output.reason ?? ""}`;
  return JSON.stringify(output?.value ?? output ?? null);
}

/** The messages by which the session knows a message of the SDK. */
function shown(message) {
  const { role, content } = message;
  if (role === "system") return [{ role, content }];
  if (role === "user") return [{ role, content: textsOf(content) }];
  const results = content
    .filter((part) => part.type === "tool-result")
    .map((part) => ({ role: "tool", tool_call_id: part.toolCallId, content: resultOf(part) }));
  if (role === "tool") return results;
  const calls = content
    .filter((part) => part.type === "tool-call")
    .map(({ toolCallId, toolName, input }) => callOf(toolCallId, toolName, input));
  const said = { role, content: textsOf(content) || null };
  return [calls.length > 0 ? { ...said, tool_calls: calls } : said, ...results];
}

/** A message that the session added, such as a summary. */
const added = (message) => ({ role: roleOf(message), content: [{ type: "text", text: contentOf(message) }] });

/** A message of the SDK, with only those of its results that are kept, and with what was shortened. */
function changed(message, pieces) {
  if (message.role === "system") return { ...message, content: contentOf(pieces[0].message ?? { content: message.content }) };
  const by = (test) => pieces.map((piece) => piece.message ?? piece.own).find(test);
  const said = pieces.find((piece) => piece.own.role !== "tool")?.message;
  let isTold = false;
  const content = message.content.flatMap((part) => {
    if (part.type === "tool-result") {
      const result = by((one) => one.tool_call_id === part.toolCallId);
      if (result === undefined) return [];
      const value = contentOf(result);
      return [value === resultOf(part) ? part : { ...part, output: { type: "text", value } }];
    }
    if (said === undefined) return [part];
    if (part.type === "tool-call") {
      const call = said.tool_calls?.find((one) => one.id === part.toolCallId);
      return [call ? { ...part, input: JSON.parse(call.function.arguments) } : part];
    }
    if (part.type !== "text" && part.type !== "file") return [part];
    if (isTold || said.content == null) return [];
    isTold = true;
    return [{ type: "text", text: contentOf(said) }];
  });
  return { ...message, content };
}

/** Takes a prompt of the SDK in and returns the one to send. */
async function prompted(session, prompt, options) {
  const all = prompt.flatMap((message, of) => shown(message).map((own) => ({ of, own })));
  const turn = await session.turn(all.map(({ own }) => own), options);
  const sent = [];
  let pieces = [];
  const flush = () => {
    if (pieces.length === 0) return;
    const message = prompt[pieces[0].of];
    const isWhole = pieces.every((piece) => piece.message === undefined) && pieces.length === all.filter(({ of }) => of === pieces[0].of).length;
    sent.push(isWhole ? message : changed(message, pieces));
    pieces = [];
  };
  for (const place of turn.places) {
    const one = place.kind === "added" ? undefined : all[place.index];
    if (one?.of !== pieces[0]?.of) flush();
    if (one === undefined) sent.push(added(place.message));
    else pieces.push({ ...one, message: place.kind === "changed" ? place.message : undefined });
  }
  flush();
  return { sent, turn };
}

function usageOf(usage) {
  const { inputTokens: read, outputTokens: written } = usage ?? {};
  const figure = (value) => (typeof value === "object" ? value?.total : value) ?? 0;
  return {
    input_tokens: figure(read),
    output_tokens: figure(written),
    cache_read_tokens: read?.cacheRead ?? usage?.cachedInputTokens ?? 0,
    cache_write_tokens: read?.cacheWrite ?? 0,
    reasoning_tokens: written?.reasoning ?? usage?.reasoningTokens ?? 0,
  };
}

/** A middleware that keeps the prompts of one conversation inside the window. `onTurn` is told what each turn did. */
export function contextMiddleware(session, { onTurn, ...options } = {}) {
  const report = (usage) => session.usage(usageOf(usage));
  return {
    specificationVersion: "v4",
    async transformParams({ params }) {
      const { sent, turn } = await prompted(session, params.prompt, options);
      onTurn?.(turn);
      return turn.changed ? { ...params, prompt: sent } : params;
    },
    async wrapGenerate({ doGenerate }) {
      const result = await doGenerate();
      await report(result.usage);
      return result;
    },
    async wrapStream({ doStream }) {
      const { stream, ...rest } = await doStream();
      const transform = async (part, controller) => {
        if (part.type === "finish") await report(part.usage);
        controller.enqueue(part);
      };
      return { stream: stream.pipeThrough(new TransformStream({ transform })), ...rest };
    },
  };
}

/** The tools of the session's engine, as tools of the SDK. */
export async function contextTools(session) {
  const tools = await session.tools();
  const one = ({ function: { name, description, parameters } }) => {
    const execute = (args) => callTool(session, name, args);
    return [name, dynamicTool({ description, inputSchema: jsonSchema(parameters), execute })];
  };
  return Object.fromEntries(tools.map(one));
}
