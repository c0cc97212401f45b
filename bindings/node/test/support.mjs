// What the tests share.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Host } from "contexture";

export const home = () => mkdtempSync(join(tmpdir(), "contexture-node-"));

/** A host over a home of its own, without a network. */
export const host = (options = {}) => new Host({ home: home(), offline: true, ...options });

/** A conversation of so many turns, as a loop with tools has it. */
export function talk(turns, size = 400) {
  const messages = [{ role: "system", content: "You are a careful programmer." }];
  for (let turn = 0; turn < turns; turn++) {
    const id = `call_${turn}`;
    messages.push(
      { role: "user", content: `Please look at part ${turn}.` },
      { role: "assistant", content: null, tool_calls: [{ id, type: "function", function: { name: "read", arguments: "{}" } }] },
      { role: "tool", tool_call_id: id, content: `part ${turn} is long and dull `.repeat(size / 20) },
      { role: "assistant", content: `Part ${turn} is fine.` },
    );
  }
  messages.push({ role: "user", content: "And now the last part, please." });
  return messages;
}
