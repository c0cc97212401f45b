// Written by `contexture setup openclaw`; `contexture setup --undo openclaw` removes it.
// Replaces OpenClaw's summaries with the ones of the context engine that Contexture runs.
__ASK__
/** How long a compaction may take from its beginning to the question for a summary, in milliseconds. */
const BEGINNING = 60_000;

export default {
  id: "contexture",
  name: "Contexture",
  register(api) {
    // The sessions whose compaction has begun. OpenClaw does not say for which session it wants a summary.
    const begun = new Map();
    // What earlier compactions took out of the window, by session. OpenClaw only hands over what is new since.
    const earlier = new Map();

    api.on("before_compaction", (event, { sessionId, workspaceDir }) => {
      begun.set(sessionId, { sessionId, cwd: workspaceDir, time: Date.now() });
    });

    api.registerCompactionProvider({
      id: "contexture",
      label: "Contexture",
      async summarize({ messages, previousSummary, signal }) {
        const sessions = [...begun.values()].filter(({ time }) => Date.now() - time < BEGINNING);
        begun.clear();
        // OpenClaw makes its own summary after an error.
        if (sessions.length !== 1) throw new Error("several sessions are compacted at the same time");
        const [{ sessionId, cwd }] = sessions;
        const before = previousSummary ? [{ type: "branch_summary", summary: previousSummary }] : [];
        const entries = [
          ...(earlier.get(sessionId) ?? before),
          ...messages.map((message) => ({ type: "message", message })),
        ];
        const answer = await ask({ event: "compact", session_id: sessionId, cwd, entries }, signal);
        if (!answer.summary) throw new Error("the engine had nothing to compact");
        earlier.set(sessionId, entries);
        return answer.summary;
      },
    });
  },
};
