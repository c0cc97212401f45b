// Shared by the adapters for agent frameworks: both pass messages of chat completions to a session.
import contexture from "./index.cjs";

/** The text of a message of chat completions. */
export const contentOf = ({ content }) => (Array.isArray(content) ? content.map((block) => block.text ?? "").join("\n") : (content ?? ""));

/** The role in which a message that the session added is sent: not every provider takes a system message there. */
export const roleOf = ({ role }) => (role === "assistant" ? "assistant" : "user");

/** A call of a tool, as a message of chat completions has it. */
export const callOf = (id, name, args) => ({ id, type: "function", function: { name, arguments: JSON.stringify(args ?? {}) } });

/** Lets the engine answer a call of one of its tools. If the arguments are wrong, the answer says so to the model. */
export function callTool(session, name, args) {
  return session.callTool(name, args).catch((error) => {
    if (error instanceof contexture.ToolError) return error.message;
    throw error;
  });
}
