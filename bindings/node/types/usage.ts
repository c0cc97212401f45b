// Compiled, and not run: the types are those that a caller needs.
import { Host, type Message, type SessionOptions, ToolError, checkEngine, registerEngine, replay, type Engine, type EngineMessage, type Outcome } from "contexture";

const options: SessionOptions = { model: "gpt-4o", contextLength: 128_000, engine: "lcm", format: "openai" };
interface Mine {
  role: "user" | "assistant";
  content: string;
}

export async function agent(): Promise<void> {
  const host = new Host({ offline: true, model: { name: "mine", complete: async (system, prompt, max) => `${system}${prompt}${max}` } });
  const session = await host.session("work", options);
  const messages: Mine[] = [{ role: "user", content: "Hello" }];
  const turn = await session.turn(messages);
  const sent: (Mine | Message)[] = turn.messages;
  const same: Mine[] = turn.body;
  for (const place of turn.places) if (place.kind !== "kept") console.log(place.message, sent, same);
  await session.answer({ role: "assistant", content: "Hello!" }, { prompt_tokens: 1 });
  const text: string = await session.callTool("lcm_grep", { pattern: "x" }).catch((error: unknown) => (error instanceof ToolError ? error.message : ""));
  console.log(text, (await replay(messages, { model: "gpt-4o", contextLength: 1, home: "x" })).totals[0]?.cost_usd);
  // @ts-expect-error: there is no such option.
  await host.session("work", { ...options, modle: "x" });
  // @ts-expect-error: and no such format.
  await host.session("work", { ...options, format: "xml" });
  await session.close();
}

class Keeps implements Engine {
  should_compress() {
    return { no: "never" };
  }
  compress(messages: EngineMessage[]): Outcome {
    return { compacted: { entries: messages.map((message) => ({ keep: message.id })) } };
  }
}
registerEngine("keeps", Keeps);
export const checked = checkEngine("keeps", Keeps);
