"""Contexture as the context engine of Hermes Agent.

``hermes plugins enable contexture`` and ``context.engine: contexture`` in Hermes' ``config.yaml`` are all there is to do.
``hermes contexture``, and ``/contexture`` in a conversation, say which engine runs and what it did.

Settings, all optional, stand in that file under ``context.engines.contexture``:

- ``engine``: the engine of Contexture's that runs, ``lcm`` by default.
- ``home``: where Contexture keeps its data, ``contexture`` in Hermes' home by default.
- ``threshold``: the share of the window from which on is compacted; by default Hermes' ``compression.threshold``.
- ``config``: more of Contexture's own configuration, as its ``config.yaml`` has it.

Where Hermes has a model for compression (``auxiliary.compression`` names a provider, a model or an address), it writes the
summaries, asked as Hermes asks it.

Hermes copies a plugin's engine for each agent, has no call by which an engine is shown messages, and gives a
conversation another id at each compaction. So an engine here observes at the hooks, holds the session of the first id of
such a lineage, and remembers which id belongs to which in Contexture's home.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any, cast

from agent.context_engine import ContextEngine  # type: ignore[import-not-found, import-untyped, unused-ignore]

from . import Changed, ContextureError, Host, Kept, Session, SessionDiffers, SessionInUse, Summary, __version__, count_tokens
from . import _hermes_status as status

logger = logging.getLogger(__name__)

NAME = "contexture"

Message = dict[str, Any]

#: What is said in a message of Hermes'. The rest are notes of its own, which a resumed conversation lacks.
SAID = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content")

#: Hermes' note that a message is in its database; what a compaction returns goes into it anew.
PERSISTED = "_db_persisted"

_current = threading.local()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def register(ctx: Any) -> None:
    """Registers the engine and the hooks at which it observes: what Hermes calls."""
    ctx.register_context_engine(Engine())
    ctx.register_hook("pre_api_request", _before_request)
    ctx.register_hook("post_llm_call", _after_turn)
    ctx.register_cli_command(NAME, "The context engine, and what it did", lambda parser: None, lambda args: print(overview()))
    ctx.register_command(NAME, lambda arguments: overview(), "The context engine, and what it did")


def overview() -> str:
    """Which engine runs, with what, and what it did."""
    from hermes_cli.config import load_config  # type: ignore[import-not-found, import-untyped, unused-ignore]

    try:
        settings = _settings()
        with_engines = {one["name"] for one in Host(settings["home"], _write_config(settings), model=_auxiliary).engines()}
    except Exception as error:
        return f"Context engine: none of Contexture's can run.\n{error}"
    chosen = str(((load_config() or {}).get("context") or {}).get("engine") or "compressor")
    engine = settings["engine"]
    told = [f"Context engine: {engine} (contexture {__version__})"]
    if engine not in with_engines:
        told[0] += f", which there is not: there are {', '.join(sorted(with_engines))}"
    if chosen != NAME:
        told.append(f"Hermes runs its own engine `{chosen}`: `hermes config set context.engine {NAME}` chooses this one.")
    told.append(f"Compacts from {float(settings['threshold']):.0%} of the window on; data in {settings['home']}.")
    told.append(f"Summaries are written by {_auxiliary.name}." if _auxiliary.is_there else "Summaries are made without a model.")
    return "\n".join([*told, *status.lines(Path(settings["home"]))])


def _before_request(**request: Any) -> None:
    engine = _engine_of(request.get("session_id") or "")
    if engine is not None:
        engine.note_fixed(request)
        engine.observe(request.get("conversation_history") or [])


def _after_turn(**turn: Any) -> None:
    engine = _engine_of(turn.get("session_id") or "")
    if engine is not None:
        engine.observe(turn.get("conversation_history") or [])


def _engine_of(session_id: str) -> Engine | None:
    """The engine of the agent that calls a hook, which says only its session.

    A background review names its parent's session, and is none of that conversation. It is told by its thread: its own
    engine was the last one there, and never had a request under an id of its own.
    """
    engine: Engine | None = getattr(_current, "engine", None)
    if engine is not None and engine.session_id == session_id:
        engine.was_asked = True
        return engine
    if engine is not None and not engine.was_asked:
        return None
    found = [engine for engine in list(_engines) if engine.session_id == session_id]
    return found[-1] if found else None


class _Auxiliary:
    """Hermes' model for compression, by whichever provider, with Hermes' own credentials and fallbacks."""

    def __init__(self) -> None:
        #: The model of the agent that was told last, which Hermes follows where its configuration says so.
        self.agent: dict[str, str] = {}

    @property
    def configured(self) -> dict[str, Any]:
        """What Hermes' configuration says of it."""
        from hermes_cli.config import load_config  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return ((load_config() or {}).get("auxiliary") or {}).get("compression") or {}

    def named(self, *keys: str) -> list[str]:
        """What is said under these keys, but for ``auto``, which leaves it to Hermes."""
        configured = self.configured
        said = (str(configured.get(key) or "").strip() for key in keys)
        return [name for name in said if name.lower() not in ("", "auto")]

    @property
    def is_there(self) -> bool:
        """Whether any is configured. Hermes would ask the agent's own model otherwise, which nobody asked for."""
        return bool(self.named("provider", "model", "base_url"))

    @property
    def name(self) -> str:
        """The model's name, or its provider's where Hermes chooses the model."""
        return (*self.named("model", "provider"), "auxiliary")[0]

    @property
    def context_length(self) -> int | None:
        """Its window in tokens, where the configuration says it."""
        return int(self.configured.get("context_length") or 0) or None

    def complete(self, system: str, prompt: str, max_tokens: int) -> str:
        """Asks it. As Hermes does, without a limit, which a model that thinks would spend on its thoughts."""
        from agent.agent_runtime_helpers import strip_think_blocks  # type: ignore[import-not-found, unused-ignore]
        from agent.auxiliary_client import (  # type: ignore[import-not-found, unused-ignore]
            aux_interrupt_protection,
            call_llm,
        )

        messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        # What interrupts the agent is no reason to lose a summary.
        with aux_interrupt_protection():
            answer = call_llm(task="compression", messages=messages, main_runtime=self.agent or None)
        content = answer.choices[0].message.content
        return str(strip_think_blocks(None, content if isinstance(content, str) else "")).strip()


_auxiliary = _Auxiliary()


class _Conversation:
    """What is known of a conversation in this process, whichever agent has it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        #: The messages as they were seen or handed out last: a copy, since Hermes appends to its own list.
        self.seen: list[Message] = []


_conversations: dict[str, _Conversation] = {}


class Engine(ContextEngine):  # type: ignore[misc, unused-ignore]
    """The context engine of one agent of Hermes'."""

    def __init__(self) -> None:
        self.session_id = ""
        #: Whether a hook came for the session that it was started with.
        self.was_asked = False
        self.model = ""
        self.context_length = 0
        self.last_prompt_tokens = 0
        self.last_completion_tokens = 0
        self.last_total_tokens = 0
        self.last_real_prompt_tokens = 0
        self.last_compression_rough_tokens = 0
        self.compression_count = 0
        self.protect_first_n = 0
        self.protect_last_n = 1
        self.threshold_percent = 0.5
        self._threshold_tokens = 0
        self._last_compress_aborted = False
        self._last_summary_error: str | None = None
        self._root = ""
        self._session: Session | None = None
        self._settings: dict[str, Any] | None = None
        self._session_db: Any = None
        self._fixed_tokens = 0
        self._fixed_of: object = None
        #: A compaction was handed out, and Hermes has not said yet under which id it goes on.
        self._at_boundary = False
        #: The tokens at which a compaction changed nothing.
        self._stuck_at = 0
        self._usage: dict[str, Any] | None = None
        self._warned: set[str] = set()
        _engines.add(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        """An engine for another agent: nothing of this one's conversation is its own."""
        return type(self)()

    @property
    def name(self) -> str:
        """What ``context.engine`` says to choose it."""
        return NAME

    @property
    def threshold_tokens(self) -> int:
        """From how many tokens on is compacted. Hermes reads it before each of its requests."""
        _current.engine = self
        return self._threshold_tokens

    @threshold_tokens.setter
    def threshold_tokens(self, tokens: int) -> None:
        self._threshold_tokens = int(tokens or 0)

    # -- settings ---------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """What Hermes' configuration says."""
        if self._settings is None:
            self._settings = _settings()
            self.threshold_percent = float(self._settings["threshold"])
        return self._settings

    def _host(self) -> Host:
        return Host(self.settings["home"], _write_config(self.settings), model=_auxiliary)

    # -- the life of a session --------------------------------------------------------------------------------------

    def bind_session_state(self, session_db: Any = None, session_id: str = "") -> None:
        """Hermes gives its database: the messages behind the head of a conversation stand in it."""
        self._session_db = session_db

    def on_session_start(self, session_id: str, **details: Any) -> None:
        """A conversation begins, goes on, or goes on under another id after a compaction."""
        _current.engine = self
        try:
            if details.get("boundary_reason") == "compression" and self._root:
                self._at_boundary = False
                if session_id != self.session_id:
                    self._remember(session_id)
                    self.session_id = session_id
                return
            if session_id == self.session_id:
                return
            self._close()
            self.was_asked = False
            self.session_id = session_id
            self._root = self._root_of(session_id)
            self.model = details.get("model") or self.model
        except Exception as error:  # An engine that raises here would not be noticed.
            self._warn("cannot begin", error)

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """A conversation ends, or has just been compacted."""
        if self._at_boundary:
            return
        self.observe(messages or [])
        self._close()

    def on_session_reset(self) -> None:
        """A conversation was left: the next one begins from nothing."""
        super().on_session_reset()
        self._close()
        self.session_id = self._root = ""
        self._stuck_at = self._fixed_tokens = 0
        self._at_boundary = False
        self._usage = None

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception as error:
                self._warn("did not close well", error)

    def _lineage(self, session_id: str) -> Path:
        return Path(self.settings["home"]) / "hermes.lineage" / status.file_of(session_id)

    def _root_of(self, session_id: str) -> str:
        try:
            return self._lineage(session_id).read_text() or session_id
        except OSError:
            return session_id

    def _remember(self, session_id: str) -> None:
        path = self._lineage(session_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(self._root)

    def _open(self) -> Session:
        if self._session is None:
            host, window = self._host(), self.context_length or 128_000
            engine = str(self.settings["engine"])
            root = self._root or self.session_id or "hermes"
            try:
                self._session = host.session(root, self.model, window, engine=engine, note=False)
            except SessionInUse as error:
                # Another process has it. This one must get on with its own, under a name of its own.
                self._warn("goes on under another name", error)
                self._session = host.session(f"{root}~{os.getpid()}", self.model, window, engine=engine, note=False)
            except SessionDiffers as open:
                # Another agent of this process has it open with another model. From now on, this agent's model counts.
                agent = (open.model, open.context_length, open.max_output_tokens)
                self._session = host.session(root, *agent, engine=engine, note=False)
                self._session.set_model(self.model, window)
            if self._usage is not None:
                self._session.usage(self._usage)
                self._usage = None
        return self._session

    @property
    def _conversation(self) -> _Conversation:
        return _conversations.setdefault(self._root or f"{id(self)}", _Conversation())

    # -- observing --------------------------------------------------------------------------------------------------

    def note_fixed(self, request: dict[str, Any]) -> None:
        """Counts what stands beside the messages of a request: system prompt and tools."""
        sent = request.get("request_messages") or []
        body = (request.get("request") or {}).get("body") or {}
        system = sent[0].get("content") if sent and sent[0].get("role") == "system" else ""
        tools = body.get("tools") or []
        of = (system if isinstance(system, str) else len(str(system)), len(tools))
        if of != self._fixed_of:
            self._fixed_of = of
            text = f"{system}\n{json.dumps(tools, default=str) if tools else ''}"
            self._fixed_tokens = count_tokens(text, self.model)

    def observe(self, messages: list[Message]) -> None:
        """Takes the messages in, without compacting. Never raises."""
        if not messages or not self._root:
            return
        try:
            with self._conversation.lock:
                self._at_boundary = False
                if _is_answer(messages, self._conversation.seen):
                    # With an answer the model calls between turns begin.
                    self._open().answer(*_said(messages[-1:]))
                else:
                    self._open().turn(_said(messages), compact="never", fixed_tokens=self._fixed_tokens)
                self._conversation.seen = list(messages)
        except Exception as error:
            self._warn("did not see the conversation", error)

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """The provider reported its usage; a provider may report none."""
        prompt = int(usage.get("prompt_tokens") or usage.get("input_tokens") or 0)
        completion = int(usage.get("completion_tokens") or usage.get("output_tokens") or 0)
        if not prompt:
            return
        self.last_prompt_tokens = self.last_real_prompt_tokens = prompt
        self.last_completion_tokens = completion
        self.last_total_tokens = int(usage.get("total_tokens") or prompt + completion)
        self._stuck_at = 0 if prompt < self._threshold_tokens else self._stuck_at
        figures = {"prompt_tokens": prompt, "completion_tokens": completion}
        for key in ("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"):
            figures[key] = int(usage.get(key) or 0)
        try:
            if self._session is not None and self._conversation.seen:
                self._session.usage(figures)
            else:
                # It counts for a prompt that was not seen yet.
                self._usage = figures
        except Exception as error:
            self._warn("did not take the usage", error)

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """The model is another, or its window turned out to be smaller."""
        _current.engine = self
        smaller = 0 < context_length < self.context_length
        self.model, self.context_length = model, int(context_length or 0)
        _auxiliary.agent = {
            "model": model,
            "provider": provider,
            "base_url": base_url,
            "api_key": api_key,
            "api_mode": api_mode,
        }
        try:
            self.threshold_percent = float(self.settings["threshold"])
            if self._session is not None:
                self._session.set_model(model, self.context_length or 128_000)
        except Exception as error:
            self._warn("did not take the model", error)
        self._threshold_tokens = int(self.context_length * self.threshold_percent)
        if smaller:
            self._stuck_at = 0

    # -- compacting -------------------------------------------------------------------------------------------------

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether a prompt of so many tokens is to be compacted. Where that changed nothing, only a larger one is."""
        _current.engine = self
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        if tokens <= 0 or not self._threshold_tokens:
            return False
        return tokens >= self._threshold_tokens and tokens > self._stuck_at * 1.05

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        """Right after a compaction a rough estimate is no reason for another, until it has grown."""
        _current.engine = self
        grown = rough_tokens - self.last_compression_rough_tokens
        return self.last_prompt_tokens == -1 and grown < self.context_length * 0.05

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Whether there is anything to compact: more than what was said last."""
        return sum(1 for message in messages if message.get("role") != "system") > 2

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[Message]:
        """The messages, smaller. Never raises: the very list where nothing could be made smaller."""
        self._last_compress_aborted, self._last_summary_error = False, None
        tokens = current_tokens or 0
        try:
            with self._conversation.lock:
                compacted = self._compact(messages, focus_topic, memory_context)
        except Exception as error:
            self._warn("could not compact", error)
            self._last_compress_aborted, self._last_summary_error = True, str(error)
            self._stuck_at = tokens
            return messages
        if compacted is None:
            self._stuck_at = tokens
            return messages
        self._stuck_at = 0
        self.compression_count += 1
        self._at_boundary = True
        return compacted

    def _compact(self, messages: list[Message], focus: str | None, memory: str) -> list[Message] | None:
        tail = self._behind(messages)
        whole = messages + tail
        turn = self._open().turn(
            _said(whole),
            compact="force",
            fixed_tokens=self._fixed_tokens,
            keep_from=len(messages) if tail else None,
            focus=focus or None,
            memory=memory.strip() or None,
        )
        if turn.report["compaction"] is not None:
            status.note(Path(self.settings["home"]), self._open().id, turn.report["compaction"])
        result: list[Message] = []
        changed = False
        for place in turn.places:
            match place:
                case Kept(index):
                    message = whole[index]
                    if index >= len(messages):
                        continue
                case Changed(index, _):
                    if index >= len(messages):
                        continue
                    message = {**whole[index], **place.message}
                    changed = True
                case Summary(_):
                    message = {**place.message, "_compressed_summary": True}
                    changed = True
            if message.get("role") == "system":
                continue
            if PERSISTED in message:
                message = {key: value for key, value in message.items() if key != PERSISTED}
            result.append(message)
        if not changed and len(result) == len(messages):
            return None
        self._conversation.seen = result + tail
        # A list of their own, for Hermes appends to it.
        return list(result)

    def _behind(self, messages: list[Message]) -> list[Message]:
        """What stands behind these messages, where they are only the head of the conversation."""
        tail = _behind(messages, self._conversation.seen)
        if tail or self._conversation.seen or self._session_db is None:
            return tail
        try:
            stored = self._session_db.get_messages_as_conversation(self.session_id)
        except Exception:
            return []
        return _behind(messages, stored)

    # -- tools ------------------------------------------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The tools of the engine that runs; asked for before any session is there."""
        _current.engine = self
        try:
            tools = self._host().tools(str(self.settings["engine"]))
            return [tool["function"] for tool in tools]
        except Exception as error:
            self._warn("offers no tools", error)
            return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **details: Any) -> str:
        """Answers a call of one of these tools, with JSON."""
        _current.engine = self
        try:
            self.observe(details.get("messages") or [])
            session = self._open()
            with self._conversation.lock:
                answer = session.call_tool(name, args or {})
        except ContextureError as error:
            return json.dumps({"error": str(error)})
        except Exception as error:
            self._warn(f"could not answer `{name}`", error)
            return json.dumps({"error": str(error)})
        try:
            json.loads(answer)
            return answer
        except ValueError:
            return json.dumps({"result": answer}, ensure_ascii=False)

    def get_status(self) -> dict[str, Any]:
        """What Hermes shows, and what the engine says of itself."""
        status = cast(dict[str, Any], super().get_status())
        if self._session is not None:
            try:
                status["contexture"] = self._session.status()
            except Exception as error:
                self._warn("has no status", error)
        return status

    def _warn(self, what: str, error: Exception) -> None:
        text = f"contexture {what}: {error}"
        log = logger.debug if text in self._warned else logger.warning
        self._warned.add(text)
        log("%s", text)


def _said(messages: list[Message]) -> list[Message]:
    return [{key: message[key] for key in SAID if key in message} for message in messages]


def _key(message: Message) -> tuple[Any, ...]:
    """What tells a message, however it was stored."""
    calls = message.get("tool_calls") or []
    content = message.get("content")
    return (
        message.get("role"),
        content if isinstance(content, str) else json.dumps(content, sort_keys=True),
        message.get("tool_call_id"),
        tuple(call.get("id") for call in calls),
    )


def _is_answer(messages: list[Message], seen: list[Message]) -> bool:
    """Whether nothing but the model's last word has come since."""
    if not seen or len(messages) != len(seen) + 1 or _key(messages[-2]) != _key(seen[-1]):
        return False
    return messages[-1].get("role") == "assistant" and not messages[-1].get("tool_calls")


def _behind(head: list[Message], all_messages: list[Message]) -> list[Message]:
    if len(head) >= len(all_messages):
        return []
    if any(_key(one) != _key(other) for one, other in zip(head, all_messages)):
        return []
    return list(all_messages[len(head) :])


def _settings() -> dict[str, Any]:
    """The settings, every one filled in, with the configuration that Contexture is given."""
    from hermes_cli.config import load_config  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from hermes_constants import get_hermes_home  # type: ignore[import-not-found, import-untyped, unused-ignore]

    config: dict[str, Any] = load_config() or {}
    own = ((config.get("context") or {}).get("engines") or {}).get(NAME) or {}
    keys = ("engine", "home", "threshold", "config")
    unknown = [str(key) for key in own if key not in keys] if isinstance(own, dict) else [str(own)]
    if unknown:
        raise ContextureError(
            f"`context.engines.{NAME}` in Hermes' config.yaml has the setting `{unknown[0]}`, which there is not: there are "
            f"{', '.join(keys)}"
        )
    threshold = own.get("threshold") or (config.get("compression") or {}).get("threshold") or 0.5
    try:
        threshold = float(threshold)
    except (TypeError, ValueError):
        threshold = 0.0
    if not 0 < threshold <= 1:
        raise ContextureError("`threshold` in Hermes' config.yaml is a share of the window, above 0 and at most 1")
    engine = own.get("engine", "lcm")
    mine: dict[str, Any] = dict(own.get("config") or {})
    mine["context"] = {"engine": engine, **(mine.get("context") or {})}
    # `auto` is the model that is lent, see `_Auxiliary`.
    mine.setdefault("auxiliary", {"compression": {"provider": "auto" if _auxiliary.is_there else "none"}})
    return {
        "engine": engine,
        "home": str(Path(own.get("home") or Path(get_hermes_home()) / "contexture").expanduser()),
        "threshold": threshold,
        "config": mine,
    }


def _write_config(settings: dict[str, Any]) -> Path:
    """Contexture's own configuration, as a file in its home."""
    home = Path(settings["home"])
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    config = home / "hermes.yaml"
    # JSON is YAML.
    text = json.dumps(settings["config"], indent=2, sort_keys=True)
    if not config.exists() or config.read_text() != text:
        scratch = config.with_suffix(f".{os.getpid()}")
        scratch.write_text(text)
        scratch.replace(config)
    return config


@atexit.register
def _close_all() -> None:
    for engine in list(_engines):
        engine._close()
