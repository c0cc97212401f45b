import type { LanguageModelMiddleware, ToolSet } from "ai";
import type { Session, Turn, TurnOptions } from "./index.js";

/** A middleware that keeps the prompts of one conversation inside the window. `onTurn` is told what each turn did. */
export function contextMiddleware(session: Session, options?: TurnOptions & { onTurn?: (turn: Turn) => void }): LanguageModelMiddleware;
/** The tools of the session's engine, as tools of the SDK. */
export function contextTools(session: Session): Promise<ToolSet>;
