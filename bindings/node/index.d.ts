/// <reference lib="esnext.disposable" />
/** A message, in the form of the provider. */
export type Message = Record<string, unknown>;
/** A body, with the list of messages in `messages`, or in `input` for the Responses API. */
export type Body = Record<string, unknown>;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** What goes wrong in Contexture. */
export class ContextureError extends Error {}
/** An argument has the wrong type, is out of range, or is none of the allowed words. */
export class ArgumentError extends ContextureError {}
/** A message, a body or a usage cannot be read. */
export class FormatError extends ContextureError {}
/** The session is open elsewhere, in this process or another. */
export class SessionInUse extends ContextureError {}
/** The engine failed, and no other engine may replace it. */
export class EngineFailed extends ContextureError {}
/** A tool of the engine refused its arguments, or failed. The message is for the model. */
export class ToolError extends ContextureError {}

/** A model of yours that writes summaries. */
export interface Model {
  readonly name: string;
  /** The size of its window in tokens, if it is known. */
  readonly contextLength?: number | null;
  complete(system: string, prompt: string, maxTokens: number): string | Promise<string>;
}

export interface HostOptions {
  /** The home directory. By default `$CONTEXTURE_HOME`, or `~/.contexture`. */
  home?: string;
  /** The configuration file. By default `config.yaml` in the home directory. */
  config?: string;
  /** Whether nothing may leave the machine. */
  offline?: boolean;
  /** Writes summaries if the configuration leaves that to the agent. */
  model?: Model;
}

export interface SessionOptions {
  /** The agent's model and the size of its window, in tokens. */
  model: string;
  contextLength: number;
  maxOutputTokens?: number;
  engine?: string;
  /** How long to wait for a session that is open elsewhere, in milliseconds. By default 2000. */
  waitMs?: number;
  format?: "openai" | "responses" | "anthropic" | "gemini";
  /** Whether a summary gets a message of its own, or joins a user message after it at the head. */
  summaries?: "own" | "folded";
  /** Whether a note is added to the system prompt when the conversation is compacted. */
  note?: boolean;
  /** What another conversation under the same id is: a new one, or an error. */
  unrelated?: "new_root" | "refuse";
}

export interface TurnOptions {
  compact?: "auto" | "force" | "never";
  /** The tokens of the system prompt and the tools, if the request does not hold them. */
  fixedTokens?: number;
  /** The index from which on messages stay as they are. */
  keepFrom?: number;
  /** A topic that a summary is to keep in more detail. */
  focus?: string;
  /** Text that a summary may draw on. */
  memory?: string;
}

export interface Tool {
  type: "function";
  function: { name: string; description: string; parameters: Record<string, Json> };
}

export interface Decision {
  compact: boolean;
  reason: string;
}

export interface Report {
  changed: boolean;
  decision: Decision;
  /** The compaction with its figures, or null. */
  compaction: Record<string, Json> | null;
  new: number;
  revised: number;
  branched: boolean;
  new_root: boolean;
  warnings: string[];
  [figure: string]: Json | Decision;
}

/** What happened to a message. Indexes are those of the messages that were given. */
export type Place =
  | { kind: "kept"; index: number }
  | { kind: "changed"; index: number; message: Message }
  | { kind: "added"; message: Message };

/** The result of a turn. Send its `messages` or its `body` in place of the request. */
export class Turn<R = unknown> {
  private constructor();
  readonly changed: boolean;
  readonly report: Report;
  readonly places: Place[];
  /** The messages to send. Those that are kept are your own objects. */
  readonly messages: R extends readonly (infer M)[] ? (M | Message)[] : Message[];
  /** What to send, in the form that you gave: the very value that you gave if nothing changed. */
  readonly body: R;
}

/** A conversation. Its calls are made one after the other, in the order in which they were asked for. */
export class Session {
  private constructor();
  readonly id: string;
  /** Takes a request in and returns what to send in its place. */
  turn<R extends readonly object[] | object | string>(request: R, options?: TurnOptions): Promise<Turn<R>>;
  /** Takes in the answer to the last turn, and the usage that the provider reported for it. */
  answer(message: object | readonly object[] | string, usage?: object | null): Promise<void>;
  /** Tells the usage that the provider reported, if the answer itself comes with the next request. */
  usage(usage: object): Promise<void>;
  /** Whether a prompt of about this many tokens would be compacted. */
  preflight(tokens: number): Promise<Decision>;
  setModel(model: string, contextLength: number, maxOutputTokens?: number): Promise<void>;
  /** The tools that the engine offers to the agent. Add them to those of each request. */
  tools(): Promise<Tool[]>;
  /** Lets the engine answer a call of one of its tools, and returns the text for the model. */
  callTool(name: string, args: object | string): Promise<string>;
  /** Pins words for the user, each line on its own, as a line `/pin WORDS` in a message does. */
  pin(words: string): Promise<void>;
  /** Ends pins, whoever made them, except those of the configuration. */
  unpin(words: string): Promise<void>;
  status(): Promise<Record<string, Json>>;
  /** The name of the engine that the session runs with. */
  engine(): Promise<string>;
  /** Forgets the conversation and begins a new one under the same id. */
  reset(): Promise<void>;
  /** Asks the call in progress to stop: its model calls fail, and it ends as if the model had failed. */
  cancel(): void;
  /** Closes the session, so that it can be opened elsewhere. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface ReplayOptions {
  model: string;
  contextLength: number;
  engine?: string;
}

export interface ReplayRow {
  engine: string;
  requests: number;
  overflows: number;
  peak_prompt_tokens: number;
  cost_usd: number;
  [figure: string]: Json;
}

export interface ReplayReport {
  totals: ReplayRow[];
  conversations: Record<string, Json>[];
  [figure: string]: Json | ReplayRow[];
}

/** The engines of a configuration and the record of their sessions. A home has one host in a process. */
export class Host {
  constructor(options?: HostOptions);
  engines(): { name: string; source: "builtin" | "plugin" | "registered"; description: string | null; chosen: boolean }[];
  /** The tools of an engine, or of the configured one. */
  tools(engine?: string): Promise<Tool[]>;
  /** Opens a conversation or continues it. */
  session(id: string, options: SessionOptions): Promise<Session>;
  /** Plays a recorded conversation through an engine and returns what its prompts would have cost. */
  replay(recorded: object | string, options: ReplayOptions): Promise<ReplayReport>;
}

/** The services that the host lends to an engine. */
export interface Services {
  /** Calls a service by its name, such as `complete`, with its argument. */
  call(service: string, argument?: unknown): Promise<any>;
  countTokens(text: string): Promise<number>;
}

/** A message as an engine sees it. */
export interface EngineMessage {
  id: number;
  role: string;
  kind: "original" | "summary" | "replaced" | "notice";
  text: string;
  tool_calls: { id: string; name: string; arguments: string }[];
  tool_call_id: string | null;
  tool_name: string | null;
  tokens: number;
  name: string | null;
  raw: string;
  state: string | null;
  time_ms: number | null;
  has_thinking: boolean;
  has_media: boolean;
  is_error: boolean;
  continues: boolean;
}

export interface WindowState {
  model: string;
  context_length: number;
  max_output_tokens: number;
  prompt_tokens: number;
  fixed_tokens: number;
  reported_tokens: number | null;
  requests_since_compaction: number;
  compactions: number;
  [figure: string]: any;
}

export interface CompressOrder {
  window: WindowState;
  force: boolean;
  by_hygiene: boolean;
  system: string | null;
  focus: string | null;
  memory: string | null;
  may_wait_for_model: boolean;
}

export type EngineDecision = { yes: string } | { no: string };
export type Entry =
  | { keep: number }
  | { restore: number }
  | { replace: { id: number; text?: string; arguments?: { index: number; arguments: string }[]; state?: object } }
  | { summary: { text: string; covers: number[]; in_system_role?: boolean } }
  | { notice: { text: string } }
  | { stub_result: { call: number; index: number; text: string } }
  | { drop: { id: number; reason?: string } };
export interface Compaction {
  entries: Entry[];
  system_note?: string;
  degraded?: boolean;
  notes?: string[];
}
export type Outcome =
  | { compacted: Compaction }
  | { nothing_to_do: string }
  | { deferred: string }
  | { floor_too_high: { tokens: number; reason: string } };

/** An engine. The methods are those of the engine protocol. They may return promises. */
export interface Engine {
  should_compress(window: WindowState): EngineDecision | Promise<EngineDecision>;
  compress(messages: EngineMessage[], order: CompressOrder): Outcome | Promise<Outcome>;
}
export type EngineClass = new (request: any, services: Services) => Engine;

/** Registers a class as an engine. Hosts that are opened afterwards have it. */
export function registerEngine(name: string, engine: EngineClass, options?: { version?: string; description?: string }): void;
/** Plays everything that engines are held to. Answers whether all of it held, and the table. */
export function checkEngine(name: string, engine: EngineClass, options?: { conversations?: number }): Promise<{ held: boolean; table: string }>;
/** The largest index up to `index` at which messages can be cut without separating a call from its results. */
export function safeCut(messages: EngineMessage[], index: number): number;
/** Counts the tokens of a text as the model's tokenizer does. */
export function countTokens(text: string, model: string): number;
/** `Host.replay`, with a host of these options. */
export function replay(recorded: object | string, options: ReplayOptions & Omit<HostOptions, "model">): Promise<ReplayReport>;
