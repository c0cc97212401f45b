// The package `contexture`. The native part takes and returns JSON text; here it gets the shape that callers see.
"use strict";

const native = require("./native.cjs");

/** What goes wrong in Contexture. */
class ContextureError extends Error {}
/** An argument has the wrong type, is out of range, or is none of the allowed words. */
class ArgumentError extends ContextureError {}
/** A message, a body or a usage cannot be read. */
class FormatError extends ContextureError {}
/** The session is open elsewhere. */
class SessionInUse extends ContextureError {}
/** The engine failed, and no other engine may replace it. */
class EngineFailed extends ContextureError {}
/** A tool of the engine refused its arguments, or failed. The message is for the model. */
class ToolError extends ContextureError {}

const classes = { ContextureError, ArgumentError, FormatError, SessionInUse, EngineFailed, ToolError };
for (const [name, one] of Object.entries(classes)) one.prototype.name = name;

/** Makes an error of this package from one of the native part, whose message is JSON. */
function raised(error) {
  let told;
  try {
    told = JSON.parse(error.message);
  } catch {
    return error;
  }
  return new (classes[told.class] ?? ContextureError)(told.message);
}

/** Calls the native part. Its errors get their classes. */
function called(name, ...args) {
  try {
    return native[name](...args);
  } catch (error) {
    throw raised(error);
  }
}

/** The same for what returns a promise of JSON text. */
async function awaited(name, ...args) {
  try {
    return JSON.parse(await native[name](...args));
  } catch (error) {
    throw raised(error);
  }
}

/** Writes a value as JSON text. Half a surrogate pair, as it is left where a text was cut, becomes U+FFFD. */
function text(value, what) {
  let json;
  try {
    json = JSON.stringify(value);
  } catch (error) {
    throw new FormatError(`${what} has no JSON form: ${error.message}`);
  }
  if (json === undefined) throw new FormatError(`${what} has no JSON form`);
  return json.includes("\\ud") ? json.replace(/\\(ud[89a-f][0-9a-f]{2}|.)/g, (all, half) => (half.length > 1 ? "\\ufffd" : all)) : json;
}

function string(value, name) {
  if (typeof value !== "string") throw new ArgumentError(`\`${name}\` must be a string, not ${typeof value}`);
  return value.isWellFormed() ? value : value.toWellFormed();
}

function count(value, name) {
  if (!Number.isSafeInteger(value) || value < 0) throw new ArgumentError(`\`${name}\` must be a whole number from 0, not ${value}`);
  return value;
}

/** A document as JSON text: it may be text already. */
const document = (value, what) => (typeof value === "string" ? string(value, what) : text(value, what));

// Hosts and sessions that were forgotten without being closed.
const forgotten = new FinalizationRegistry(([release, number]) => native[release](number));

/** Calls a method of `target` and answers the native part, at once or when a promise is settled. */
function answer(call, method) {
  const fails = (error) => native.answerCall(call, null, String(error?.constructor?.name), String(error?.message ?? error));
  try {
    Promise.resolve(method())
      .then((result) => native.answerCall(call, text(result ?? null, "the answer"), null, null))
      .catch(fails);
  } catch (error) {
    fails(error);
  }
}

class UnknownMethod extends Error {}

/** The services that the host lends to an engine. */
class Services {
  #number;
  constructor(number) {
    this.#number = number;
  }

  /** Calls a service by its name, such as `complete` or `count_tokens`, with its argument. */
  call(service, argument = null) {
    return awaited("callService", this.#number, string(service, "service"), text(argument, "the argument"));
  }

  countTokens(value) {
    return this.call("count_tokens", string(value, "text"));
  }
}

/** Returns what the native part calls the engines of a class with. */
function dispatcherOf(Engine) {
  const engines = new Map();
  return (json) => {
    const { call, object, method, argument, messages } = JSON.parse(json);
    if (method === "drop") {
      engines.delete(object);
      return;
    }
    answer(call, () => {
      const told = JSON.parse(argument);
      if (method === "open") {
        const request = { ...told, settings: JSON.parse(told.settings) };
        engines.set(object, new Engine(request, new Services(object)));
        return null;
      }
      const engine = engines.get(object);
      if (typeof engine?.[method] !== "function") throw new UnknownMethod(method);
      const parameters = told === null ? [] : Array.isArray(told) ? told : [told];
      return engine[method](...(messages === null ? parameters : [messages, ...parameters]));
    });
  };
}

function checkClass(Engine) {
  if (typeof Engine !== "function") throw new ArgumentError("`engine` must be the class of an engine");
  for (const method of ["should_compress", "compress"]) {
    if (typeof Engine.prototype?.[method] !== "function") {
      throw new ArgumentError(`\`engine\` must be the class of an engine: ${Engine.name || "it"} has no method \`${method}\``);
    }
  }
}

/** The result of a turn. */
class Turn {
  #given;
  #key;
  #own;
  #result;

  constructor(given, key, own, result) {
    this.#given = given;
    this.#key = key;
    this.#own = own;
    this.#result = result;
  }

  /** Whether the result differs from the request. */
  get changed() {
    return this.#result.changed;
  }

  /** What happened: the decision, the compaction with its figures, what was new, and warnings. */
  get report() {
    return this.#result.report;
  }

  /** What happened to each message, in the order of the result. */
  get places() {
    return this.#result.places.map((place) => {
      if (place.kept !== undefined) return { kind: "kept", index: place.kept };
      if (place.changed !== undefined) return { kind: "changed", index: place.changed[0], message: place.changed[1] };
      return { kind: "added", message: place.added };
    });
  }

  /** The messages to send. Those that are kept are the caller's own objects. */
  get messages() {
    const given = this.#own ?? JSON.parse(this.#given);
    const own = Array.isArray(given) ? given : given[this.#key];
    return this.#result.places.map((place) => place.added ?? place.changed?.[1] ?? own[place.kept]);
  }

  /** What to send, in the form that was given: the very value that was given if nothing changed. */
  get body() {
    const { changed, body } = this.#result;
    if (!changed) return this.#given;
    if (typeof this.#given === "string") return body;
    return Array.isArray(this.#given) ? this.messages : { ...this.#given, ...JSON.parse(body) };
  }
}

/** The members of a body that the host reads beside its list of messages. */
const READ = ["model", "system", "instructions", "systemInstruction", "system_instruction", "tools", "tool_choice"];

/** The names of the list of messages in formats that do not call it `messages`. */
const LISTS = { responses: "input", gemini: "contents" };

/** A conversation. Its calls are made one after the other, in the order in which they were asked for. */
class Session {
  #number;
  #id;
  #key;
  #closed = false;
  #last = Promise.resolve();

  constructor(number, id, key) {
    this.#number = number;
    this.#id = id;
    this.#key = key;
    forgotten.register(this, ["releaseSession", number], this);
  }

  get id() {
    return this.#id;
  }

  #call(call) {
    if (this.#closed) return Promise.reject(new ContextureError(`the session \`${this.#id}\` is closed: open it again`));
    const made = () => awaited("sessionCall", this.#number, text(call, "the call"));
    const result = this.#last.then(made, made);
    this.#last = result.catch(() => {});
    return result;
  }

  /** Takes a request in and returns what to send in its place. The request is a list of messages, or a body. */
  async turn(request, options = {}) {
    let own = null;
    let body = request;
    if (typeof request === "string") string(request, "request");
    else {
      const isList = Array.isArray(request);
      own = isList ? request : request?.[this.#key];
      if (!Array.isArray(own)) throw new FormatError(`a request must be a list of messages, or a body with a list \`${this.#key}\``);
      own = [...own];
      const read = isList ? [] : READ.filter((name) => request[name] != null).map((name) => [name, request[name]]);
      body = text({ ...Object.fromEntries(read), [this.#key]: own }, "the request");
    }
    const result = await this.#call({ method: "turn", body, options });
    return new Turn(request, this.#key, own, result);
  }

  /** Takes in the answer to the last turn: a message, or the list of items of the Responses API. */
  async answer(message, usage) {
    const items = (Array.isArray(message) ? message : [message]).map((item) => document(item, "the answer"));
    await this.#call({ method: "answer", items, usage: usage ?? null });
  }

  /** Tells the usage that the provider reported, if the answer itself comes with the next request. */
  async usage(usage) {
    await this.#call({ method: "usage", usage: usage ?? null });
  }

  /** Whether a prompt of about this many tokens would be compacted. */
  async preflight(tokens) {
    return this.#call({ method: "preflight", tokens: count(tokens, "tokens") });
  }

  /** Tells the session that the agent's model changed. */
  async setModel(model, contextLength, maxOutputTokens = 0) {
    await this.#call({
      method: "setModel",
      model: string(model, "model"),
      contextLength: count(contextLength, "contextLength"),
      maxOutputTokens: count(maxOutputTokens, "maxOutputTokens"),
    });
  }

  /** The tools that the engine offers to the agent, in OpenAI's form. */
  async tools() {
    return this.#call({ method: "tools" });
  }

  /** Lets the engine answer a call of one of its tools, and returns the text for the model. */
  async callTool(name, args) {
    return this.#call({ method: "callTool", name: string(name, "name"), arguments: document(args, "args") });
  }

  /** Pins words for the user, each line on its own, as a line `/pin WORDS` in a message does. */
  async pin(words) {
    await this.#call({ method: "pin", words: string(words, "words") });
  }

  /** Ends pins, whoever made them, except those of the configuration. */
  async unpin(words) {
    await this.#call({ method: "unpin", words: string(words, "words") });
  }

  /** How full the window is, which engine runs, and what it says about itself. */
  async status() {
    return this.#call({ method: "status" });
  }

  /** The name of the engine that the session runs with. */
  async engine() {
    return this.#call({ method: "engine" });
  }

  /** Forgets the conversation and begins a new one under the same id. */
  async reset() {
    await this.#call({ method: "reset" });
  }

  /** Asks the call in progress to stop: its model calls fail, and it ends as if the model had failed. */
  cancel() {
    if (!this.#closed) native.sessionCancel(this.#number);
  }

  /** Closes the session. Further calls of this do nothing. */
  async close() {
    if (this.#closed) return;
    const closes = this.#call({ method: "close" });
    this.#closed = true;
    forgotten.unregister(this);
    await closes;
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.close();
  }
}

/** The engines of a configuration and the record of their sessions. */
class Host {
  #number;

  constructor(options = {}) {
    const { model, ...rest } = options ?? {};
    let spec = rest;
    if (model != null) {
      if (typeof model.complete !== "function") throw new ArgumentError("`model` must have a method `complete`");
      spec = { ...rest, model: { name: string(model.name, "model.name"), contextLength: model.contextLength ?? null } };
    }
    const dispatch = (json) => {
      const { call, system, prompt, maxTokens } = JSON.parse(json);
      answer(call, () => model.complete(system, prompt, maxTokens));
    };
    this.#number = called("openHost", text(spec, "the options"), dispatch);
    forgotten.register(this, ["releaseHost", this.#number]);
  }

  /** The engines that can be used. */
  engines() {
    return JSON.parse(called("hostEngines", this.#number));
  }

  /** The tools of an engine, or of the configured one, in OpenAI's form. */
  async tools(engine) {
    return awaited("hostTools", this.#number, engine == null ? null : string(engine, "engine"));
  }

  /** Opens a conversation or continues it. */
  async session(id, options) {
    const spec = text({ ...options, id: string(id, "id") }, "the options");
    const number = await awaited("hostSession", this.#number, spec);
    return new Session(number, id, LISTS[options?.format] ?? "messages");
  }

  /** Plays a recorded conversation through an engine and returns what its prompts would have cost. */
  async replay(recorded, options) {
    return awaited("hostReplay", this.#number, document(recorded, "the document"), text(options, "the options"));
  }
}

/** `Host.replay`, with a host of these options. */
async function replay(recorded, { home, config, offline, ...options }) {
  return new Host({ home, config, offline }).replay(recorded, options);
}

/** Counts the tokens of a text as the model's tokenizer does. */
function countTokens(value, model) {
  return native.countTokens(string(value, "text"), string(model, "model"));
}

/** Registers a class as an engine. Hosts that are opened afterwards have it. */
function registerEngine(name, Engine, { version = "0", description = "" } = {}) {
  checkClass(Engine);
  called("registerEngine", string(name, "name"), string(version, "version"), string(description, "description"), dispatcherOf(Engine));
}

/** Plays everything that engines are held to. Answers whether all of it held, and the table. */
async function checkEngine(name, Engine, { conversations = 24 } = {}) {
  checkClass(Engine);
  const [held, table] = await awaited("checkEngine", string(name, "name"), count(conversations, "conversations"), dispatcherOf(Engine));
  return { held, table };
}

/** The largest index up to `index` at which messages can be cut without separating a call from its results. */
function safeCut(messages, index) {
  return called("safeCut", text(messages, "the messages"), count(Math.max(0, index), "index"));
}

module.exports = { ...classes, Host, Session, Turn, checkEngine, countTokens, registerEngine, replay, safeCut };
