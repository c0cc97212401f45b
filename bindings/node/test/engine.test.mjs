import assert from "node:assert/strict";
import { test } from "node:test";
import { checkEngine, registerEngine, safeCut, ArgumentError, ContextureError, ToolError } from "contexture";
import { host, talk } from "./support.mjs";

/** Keeps the last ten messages, and has a tool that counts what left. */
class LastTen {
  constructor(request, services) {
    this.session = request.session;
    this.services = services;
    this.left = 0;
  }

  should_compress(window) {
    const reason = `${window.prompt_tokens} of ${window.context_length} tokens`;
    return window.prompt_tokens * 2 >= window.context_length ? { yes: reason } : { no: reason };
  }

  async compress(messages, order) {
    const said = messages.findLastIndex((message) => message.role === "user");
    const cut = safeCut(messages, Math.min(messages.length - 10, said));
    const gone = messages.slice(0, cut);
    if (gone.reduce((sum, message) => sum + message.tokens, 0) < 60) return { nothing_to_do: "there is little before the last ten" };
    const text = `${cut} earlier messages were left out.`;
    assert.ok((await this.services.countTokens(text)) > 3);
    const summary = { text, covers: gone.map((message) => message.id) };
    return { compacted: { entries: [{ summary }, ...messages.slice(cut).map((message) => ({ keep: message.id }))] } };
  }

  committed({ entries }) {
    for (const entry of entries) this.left += entry.summary?.covers.length ?? 0;
  }

  tools() {
    return [{ name: "left", description: "Counts what left.", parameters: { type: "object" } }];
  }

  call_tool({ name, arguments: told }) {
    if (name !== "left" || JSON.stringify(JSON.parse(told)) !== "{}") throw new TypeError("the tool `left` takes an empty object");
    return `${this.session}: ${this.left}`;
  }
}

test("a class is an engine", async () => {
  registerEngine("last-ten", LastTen, { version: "1", description: "Keeps the last ten." });
  const opened = host();
  assert.ok(opened.engines().some((engine) => engine.name === "last-ten" && engine.description === "Keeps the last ten."));
  assert.equal((await opened.tools("last-ten"))[0].function.name, "left");
  const [one, two] = await Promise.all(["one", "two"].map((id) => opened.session(id, { model: "gpt-4o", contextLength: 16_000, engine: "last-ten" })));
  const long = talk(40, 2_000);
  const turn = await one.turn(long);
  assert.equal(turn.report.compaction.engine, "last-ten");
  assert.ok(turn.messages.some((message) => /earlier messages were left out/.test(message.content ?? "")));
  assert.match(await one.callTool("left", {}), /^one: 1\d\d$/);
  assert.equal(await two.callTool("left", "{}"), "two: 0");
  await assert.rejects(two.callTool("left", []), ToolError);
  await Promise.all([one.close(), two.close()]);
});

test("an engine that throws costs no turn", async () => {
  class Throws extends LastTen {
    compress() {
      throw new Error("thrown on purpose");
    }
  }
  registerEngine("throws", Throws);
  const session = await host().session("s", { model: "gpt-4o", contextLength: 16_000, engine: "throws" });
  const turn = await session.turn(talk(40, 2_000));
  assert.equal(turn.report.compaction.engine, "compressor");
  assert.match(JSON.stringify(turn.report), /thrown on purpose/);
});

test("what is no engine is refused", () => {
  assert.throws(() => registerEngine("x", {}), ArgumentError);
  assert.throws(() => registerEngine("x", class {}), /has no method `should_compress`/);
  assert.throws(() => registerEngine("compressor", LastTen), /belongs to the built-in engine/);
  registerEngine("twice", LastTen);
  assert.throws(() => registerEngine("twice", LastTen, { version: "2" }), ContextureError);
});

test("a class is held to what engines are held to", async () => {
  const good = await checkEngine("last-ten", LastTen, { conversations: 1 });
  assert.ok(good.held, good.table);
  class Forgets extends LastTen {
    compress(messages) {
      return { compacted: { entries: messages.slice(1).map((message) => ({ keep: message.id })) } };
    }
  }
  const bad = await checkEngine("forgets", Forgets, { conversations: 0 });
  assert.equal(bad.held, false);
  assert.match(bad.table, /^contract .* no: /m);
});
