// Compiled, and not run: the middleware has the types that the SDK asks for.
import { type LanguageModelMiddleware, wrapLanguageModel } from "ai";
import type { Session } from "contexture";
import { contextMiddleware, contextTools } from "contexture/ai-sdk";

declare const session: Session;
declare const model: Parameters<typeof wrapLanguageModel>[0]["model"];
const middleware: LanguageModelMiddleware = contextMiddleware(session, {
  keepFrom: 1,
  onTurn: (turn) => console.log(turn.report.compaction),
});
export const wrapped = wrapLanguageModel({ model, middleware });
export const tools = await contextTools(session);
