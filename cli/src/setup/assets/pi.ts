// Written by `contexture setup pi`; `contexture setup --undo pi` removes it.
// Replaces pi's own compaction with the one of the context engine that Contexture runs.
__ASK__
export default function (pi: any) {
  pi.on("session_before_compact", async (event: any, ctx: any) => {
    const { preparation, branchEntries, customInstructions, signal } = event;
    try {
      const end = branchEntries.findIndex((entry: any) => entry.id === preparation.firstKeptEntryId);
      const entries = end < 0 ? branchEntries : branchEntries.slice(0, end);
      const answer = await ask(
        {
          event: "compact",
          session_id: ctx.sessionManager.getSessionId(),
          cwd: ctx.sessionManager.getCwd(),
          focus: customInstructions,
          entries,
        },
        signal,
      );
      if (!answer.summary) return undefined;
      return {
        compaction: {
          summary: answer.summary,
          firstKeptEntryId: preparation.firstKeptEntryId,
          tokensBefore: preparation.tokensBefore,
          details: { by: "contexture" },
        },
      };
    } catch (error: any) {
      if (signal?.aborted) return { cancel: true };
      const what = `contexture: pi's own compaction is used, because: ${error.message}`;
      if (ctx.hasUI) ctx.ui.notify(what, "warning");
      else console.error(what);
      return undefined;
    }
  });
}
