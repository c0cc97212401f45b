// @ts-check
// A context engine for Node, with types that TypeScript checks and no build. docs/engine-protocol.md describes the messages.
import { createInterface } from "node:readline";

/** @typedef {{ id: number, role: string, kind: string, text: string, tokens: number, has_thinking: boolean, continues: boolean,
 *              tool_call_id: string | null, tool_calls: { id: string, name: string, arguments: string }[] }} Message */

const engine = {
  keepLast: 20,
  /** @type {string[]} */ outlines: [],

  initialize: () => ({ name: "engine-typescript", version: "0.1.0", about: { offers_tools: true } }),

  open(/** @type {any} */ request) {
    this.keepLast = JSON.parse(request.settings).keep_last ?? 20;
    this.outlines = request.compaction?.summaries ?? [];
  },

  should_compress(/** @type {any} */ window) {
    const tokens = window.reported_tokens ?? window.prompt_tokens;
    // If what has to stay is large, the window is soon half full again.
    const waits = window.compactions > 0 && window.requests_since_compaction < 4 && tokens < 0.85 * window.context_length;
    const reason = `${tokens} of ${window.context_length} tokens`;
    return tokens * 2 >= window.context_length && !waits ? { yes: reason } : { no: reason };
  },

  compress(/** @type {Message[]} */ messages, /** @type {any} */ order) {
    const room = order.window.context_length * 0.35 - order.window.fixed_tokens;
    const size = (/** @type {Message[]} */ some) => some.reduce((sum, message) => sum + message.tokens, 0);
    let keep = this.keepLast;
    let kept = this.kept(messages, keep);
    for (; size(kept) > room && keep > 1; kept = this.kept(messages, keep)) keep = Math.floor(keep / 2);
    const gone = messages.filter((message) => !kept.includes(message));
    if (size(gone) < 1000) return { nothing_to_do: `little stands before the last ${keep} messages` };
    const summary = { text: this.outline(gone), covers: gone.map((message) => message.id) };
    return { compacted: { entries: [{ summary }, ...kept.map((message) => ({ keep: message.id }))] } };
  },

  /** The last messages and the user's last one, with the calls and results that belong to them. */
  kept(/** @type {Message[]} */ messages, /** @type {number} */ keep) {
    const said = messages.findLastIndex((message) => message.role === "user" && message.kind === "original");
    const kept = new Set(messages.map((_, at) => at).filter((at) => at >= messages.length - keep || at === said));
    const calls = new Map();
    const groups = messages.map((message, at) => {
      for (const call of message.tool_calls) calls.set(call.id, at);
      const thinks = message.has_thinking && at + 1 < messages.length; // thinking stays with the message after it
      const from = message.continues && at > 0 ? at - 1 : at; // the call of the provider's tool is in the message before it
      return [calls.get(message.tool_call_id) ?? from, thinks ? at + 1 : at];
    });
    for (let before = -1; before !== kept.size; ) {
      before = kept.size;
      for (const [from, to] of groups) {
        const group = Array.from({ length: to - from + 1 }, (_, at) => from + at);
        if (group.some((at) => kept.has(at))) group.forEach((at) => kept.add(at));
      }
    }
    return messages.filter((_, at) => kept.has(at));
  },

  outline(/** @type {Message[]} */ messages) {
    const lines = messages.flatMap((message) => {
      if (message.kind === "summary") return message.text.split("\n").slice(1);
      const line = [`${message.role}:`, ...message.text.split(/\s+/), ...message.tool_calls.map((call) => call.name)];
      return Array.from(line.join(" ")).slice(0, 80).join(""); // by characters, so that none is cut in half
    });
    return ["An outline of the earlier conversation:", ...lines.slice(-30)].join("\n");
  },

  committed(/** @type {any} */ { entries }) {
    const texts = entries.flatMap((/** @type {any} */ entry) => entry.summary?.text ?? []);
    if (texts.length > 0) this.outlines = texts;
  },

  tools: () => [{ name: "outline", description: "Returns the outline of what left the window.", parameters: { type: "object" } }],

  async call_tool(/** @type {any} */ call) {
    if (call.name !== "outline" || JSON.stringify(JSON.parse(call.arguments)) !== "{}") {
      throw new TypeError("the tool `outline` takes an empty object");
    }
    await ask("log", "info", "the agent reads the outline");
    return this.outlines.join("\n") || "nothing has left the window yet";
  },
};

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const send = (/** @type {object} */ message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");

/** Calls a service of the host and waits for its answer. */
async function ask(/** @type {string} */ service, /** @type {unknown[]} */ ...params) {
  send({ id: service, method: service, params });
  const answer = JSON.parse((await lines.next()).value);
  if (answer.error) throw new Error(answer.error.message);
  return answer.result;
}

for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const { id, method, params } = JSON.parse(line.value);
  try {
    const found = /** @type {any} */ (engine)[method];
    if (found) send({ id, result: (await found.apply(engine, params)) ?? null });
    else send({ id, error: { code: -32601, message: "there is no such method" } });
  } catch (/** @type {any} */ error) {
    const isInput = error instanceof TypeError || error instanceof SyntaxError;
    send({ id, error: { code: isInput ? -32602 : -32000, message: error.message } });
  }
}
