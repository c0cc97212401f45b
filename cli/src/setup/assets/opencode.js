// Written by `contexture setup opencode`; `contexture setup --undo opencode` removes it.
// Puts the compaction of Contexture's context engine in the place of OpenCode's own summary.
__ASK__
export const Contexture = async ({ client, directory }) => {
  // The session whose compaction has begun. The next messages are the ones to be summarised.
  let compacting;
  // What stands in the place of OpenCode's summary, by session. null if there is nothing.
  const summaries = new Map();

  async function say(message) {
    const body = { service: "contexture", level: "warn", message };
    await client.app.log({ body }).catch(() => {});
    await client.tui.showToast({ body: { message, variant: "warning" } }).catch(() => {});
  }

  /** Everything that was said up to the last of these messages, earlier compactions included. */
  async function history(sessionID, messages) {
    const last = messages.at(-1).info.id;
    const answer = await client.session.messages({ path: { id: sessionID } });
    const all = answer.data ?? [];
    const end = all.findIndex((message) => message.info.id === last);
    return end < 0 ? messages : all.slice(0, end + 1);
  }

  async function compact(sessionID, messages) {
    const answer = await ask({
      event: "compact",
      session_id: sessionID,
      cwd: directory,
      messages: await history(sessionID, messages),
    });
    if (!answer.summary) return;
    summaries.set(sessionID, answer.summary);
    // OpenCode still asks its model for a summary, which is then replaced. This keeps it short.
    const [first] = messages;
    const text =
      "The history of this conversation is kept elsewhere and put in the place of your summary. " +
      "Answer with this one line only: History kept by Contexture.";
    const part = { id: "prt_contexture", messageID: first.info.id, sessionID, type: "text", text };
    messages.splice(0, messages.length, { info: { ...first.info, role: "user" }, parts: [part] });
  }

  async function replace(messages) {
    const at = messages.findLastIndex(({ info }) => info.role === "assistant" && info.summary === true);
    if (at < 0) return;
    const { info, parts } = messages[at];
    if (!summaries.has(info.sessionID)) {
      // After a restart of OpenCode.
      const answer = await ask({ event: "summary", session_id: info.sessionID, cwd: directory });
      summaries.set(info.sessionID, answer.summary ?? null);
    }
    const summary = summaries.get(info.sessionID);
    const text = parts.find((part) => part.type === "text");
    if (!summary || !text) return;
    const rest = parts.filter((part) => part.type !== "text");
    messages[at] = { info, parts: [{ ...text, text: summary }, ...rest] };
  }

  return {
    "experimental.session.compacting": async ({ sessionID }) => {
      compacting = sessionID;
    },
    "experimental.chat.messages.transform": async (_, { messages }) => {
      const sessionID = compacting;
      compacting = undefined;
      try {
        if (sessionID === undefined) return await replace(messages);
        // Should this fail, a summary of an earlier compaction must not stand for this one.
        summaries.set(sessionID, null);
        if (messages.length > 0) await compact(sessionID, messages);
      } catch (error) {
        await say(`contexture: OpenCode's own compaction is used, because: ${error.message}`);
      }
    },
  };
};
