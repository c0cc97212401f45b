import type { AgentMiddleware } from "langchain";
import type { Host, SessionOptions, Turn } from "./index.js";

export interface ContextOptions extends Omit<SessionOptions, "format"> {
  /** The id of the session. By default that of the thread. */
  sessionId?: string;
  /** Several agents that share a thread have sessions of their own if each has a name. */
  agent?: string;
  /** Is told what each turn did. */
  onTurn?: (turn: Turn) => void;
}

/** A middleware that keeps each thread of an agent inside the window. `close` closes the sessions that are open. */
export function contextMiddleware(host: Host, options: ContextOptions): Promise<AgentMiddleware & { close(): Promise<void> }>;
