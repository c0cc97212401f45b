// Written by `contexture setup openclaw`; `contexture setup --undo openclaw` removes it.
// Has the context engine that Contexture runs decide what OpenClaw's model sees.
import { buildMemorySystemPromptAddition, delegateCompactionToRuntime } from "openclaw/plugin-sdk/core";
import { readVisibleSessionTranscriptMessageEntries } from "openclaw/plugin-sdk/session-transcript-runtime";
__ASK__
// The tools of the engine that was configured when this file was written.
const TOOLS = __TOOLS__;

export default {
  id: "contexture",
  name: "Contexture",
  register(api) {
    // The last failure, which is said once, because there are many requests in a task.
    let said;
    function say({ message }) {
      if (message !== said) api.logger.warn(`contexture: OpenClaw's own compaction is used, because: ${message}`);
      said = message;
    }

    api.registerContextEngine("contexture", ({ workspaceDir: cwd }) => {
      async function assemble({ sessionId, sessionKey, messages, tokenBudget, model, availableTools, citationsMode }) {
        // OpenClaw leaves this part of its system prompt to the engine.
        const systemPromptAddition = buildMemorySystemPromptAddition({
          availableTools: availableTools ?? new Set(),
          citationsMode,
          agentSessionKey: sessionKey,
        });
        const all = { messages, estimatedTokens: 0, systemPromptAddition };
        if (messages.length === 0) return all;
        try {
          const answer = await ask({ event: "assemble", session_id: sessionId, cwd, messages, window: tokenBudget, model });
          said = undefined;
          const window = answer.messages?.map((entry) => (typeof entry === "number" ? messages[entry] : entry));
          return { ...all, messages: window ?? messages, estimatedTokens: answer.tokens };
        } catch (error) {
          say(error);
          // OpenClaw then checks the size itself, and calls `compact` if it is too large.
          return { ...all, promptAuthority: "preassembly_may_overflow" };
        }
      }

      async function compact(params) {
        const { sessionId, sessionTarget, tokenBudget, customInstructions, runtimeSettings, abortSignal } = params;
        try {
          const entries = await readVisibleSessionTranscriptMessageEntries(sessionTarget);
          const answer = await ask(
            {
              event: "compact",
              session_id: sessionId,
              cwd,
              messages: entries.map((entry) => entry.message),
              window: tokenBudget,
              model: runtimeSettings?.model?.resolved,
              focus: customInstructions,
            },
            abortSignal,
          );
          const { compacted, reason, tokens_before: tokensBefore, tokens: tokensAfter } = answer;
          return { ok: true, compacted, reason, result: { tokensBefore, tokensAfter } };
        } catch (error) {
          abortSignal?.throwIfAborted();
          say(error);
          return delegateCompactionToRuntime(params);
        }
      }

      return {
        info: {
          id: "contexture",
          name: "Contexture",
          ownsCompaction: true,
          transcriptSemantics: {
            currentTurnFence: "before-current-turn-entry-v1",
            turnAdvancementIdempotency: "atomic-idempotent-v1",
          },
        },
        assemble,
        compact,
        // `assemble` and `compact` pass the whole conversation, in which known messages are recognised. So there is
        // nothing else to store, and nothing that could be stored twice.
        ingest: async () => ({ ingested: false }),
        commitTurn: async () => ({ status: "committed" }),
      };
    });

    for (const { name, description, parameters } of TOOLS) {
      const tool = ({ sessionId }) => ({
        name,
        label: name,
        description,
        parameters,
        async execute(_, given, signal) {
          const answer = await ask({ event: "tool", session_id: sessionId, tool: name, arguments: given }, signal);
          if (answer.error) throw new Error(answer.error);
          return { content: [{ type: "text", text: answer.text }] };
        },
      });
      api.registerTool(tool, { name });
    }
  },
};
