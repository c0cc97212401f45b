"""Shared by the adapters for agent frameworks.

A framework keeps the whole conversation. Before each call of the model, an adapter passes that conversation to a session and
sends what the session returns. The framework's own history is not changed.

``Sessions`` opens a session for each conversation. A ``Piece`` links a message of chat completions to the framework's
message, and ``window`` uses these links to map the result of a turn back to the framework's messages.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from ._native import ArgumentError, Changed, ContextureError, Host, Kept, Session, ToolError, Turn

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger(__name__)

_Message = TypeVar("_Message")

#: A message in the form of chat completions.
Chat = dict[str, Any]


class Options(TypedDict, total=False):
    """Options of ``Host.session`` that every adapter takes."""

    max_output_tokens: int
    engine: str | None
    summaries: Literal["own", "folded"]
    note: bool


class Sessions:
    """The sessions of an agent's conversations."""

    #: How many sessions stay open between two calls. An open session keeps its messages in memory and holds its lock.
    KEPT = 32

    def __init__(
        self,
        host: Host,
        model: str,
        context_length: int,
        format: Literal["openai", "responses"] = "openai",
        **options: Unpack[Options],
    ) -> None:
        # Not every provider takes a conversation that begins with the model's words.
        options.setdefault("summaries", "folded")

        def open(id: str) -> Session:
            return host.session(id, model, context_length, format=format, **options)

        self._host, self._engine, self._open = host, options.get("engine"), open
        self._kept: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def open(self, id: str | None) -> Iterator[Session]:
        """Opens the session of a conversation for one call."""
        if not id:
            raise ArgumentError(
                "the conversation has no id, so its session cannot be found: name a thread or a session as the framework does, "
                "or pass `session_id` to the adapter"
            )
        # Each call has its own handle, so no other call can close it. Afterwards it replaces the handle of the last call.
        session = self._open(id)
        try:
            yield session
        finally:
            with self._lock:
                closing = [self._kept.pop(id, None)]
                self._kept[id] = session
                if len(self._kept) > self.KEPT:
                    closing.append(self._kept.popitem(last=False)[1])
            for handle in closing:
                if handle is not None:
                    handle.close()

    def turn(self, id: str | None, body: dict[str, Any]) -> Turn:
        """Passes a request to the session of a conversation."""
        with self.open(id) as session:
            return session.turn(body)

    def answer(self, id: str | None, message: Any, usage: Any) -> None:
        """Shows the session the model's answer, and the usage if the provider reported it."""
        try:
            with self.open(id) as session:
                session.answer(message, usage or None)
        except ContextureError as error:
            # No reason to lose an answer that was paid for. It comes again with the next request.
            logger.warning("contexture did not read an answer: %s", error)

    def tools(self) -> list[dict[str, Any]]:
        """The engine's tools: ``name``, ``description`` and ``parameters``, a JSON schema."""
        return [tool["function"] for tool in self._host.tools(self._engine)]

    def call_tool(self, id: str | None, name: str, arguments: dict[str, Any] | str) -> str:
        """Answers a call of one of these tools. If the arguments are wrong, the answer says so to the model."""
        with self.open(id) as session:
            try:
                return session.call_tool(name, arguments)
            except ToolError as error:
                return str(error)

    def close(self) -> None:
        """Closes all sessions. They are opened again when they are needed."""
        with self._lock:
            kept, self._kept = self._kept, OrderedDict()
        for session in kept.values():
            session.close()


@dataclass
class Piece(Generic[_Message]):
    """A message of chat completions, and the framework's message that it was made from.

    Some frameworks store two tool results in one message, which are two messages of chat completions. Then each piece has its
    own ``parts`` of the message.
    """

    chat: Chat
    message: _Message
    parts: Sequence[Any] = ()


def window(
    turn: Turn,
    pieces: Sequence[Piece[_Message]],
    changed: Callable[[Piece[_Message], Chat], Piece[_Message]],
    added: Callable[[Chat], Piece[_Message]],
) -> list[tuple[_Message, list[Any]]]:
    """Returns the messages to send, each with its parts.

    ``pieces`` are the messages that were passed to the turn. ``changed`` returns a piece with new content, and ``added`` makes
    a piece for a summary. Neighbours that belong to one message are joined again.
    """
    result = []
    for place in turn.places:
        match place:
            case Kept(index):
                result.append(pieces[index])
            case Changed(index, _):
                result.append(changed(pieces[index], place.message))
            case _:
                # Not every provider takes a system message in the middle of a conversation.
                role = "user" if place.message["role"] == "system" else place.message["role"]
                result.append(added({**place.message, "role": role}))
    messages = []
    for _, group in groupby(result, key=lambda piece: id(piece.message)):
        same = list(group)
        messages.append((same[0].message, [part for piece in same for part in piece.parts]))
    return messages


def assistant(text: str, calls: Iterable[tuple[str | None, str | None, Any]]) -> Chat:
    """Returns a message of the model. A call is an id, a name, and arguments as JSON or as a dictionary."""
    functions = [
        {
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments or {})},
        }
        for id, name, arguments in calls
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": functions} if functions else {})}


def tool(name: str, description: str | None, parameters: Any) -> Chat:
    """The definition of a tool."""
    return {"type": "function", "function": {"name": name, "description": description or "", "parameters": parameters}}


def text_of(chat: Chat) -> str:
    """The text of a message. Blocks without text are skipped."""
    content = chat.get("content") or ""
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content if "text" in block)


def usage(
    prompt: int | None,
    completion: int | None,
    cache_read: int | None = None,
    cache_write: int | None = None,
    reasoning: int | None = None,
) -> dict[str, int | None] | None:
    """Returns what a provider reported, under the names that a session reads. ``None`` if it reported nothing."""
    figures = {"prompt_tokens": prompt, "completion_tokens": completion, "reasoning_tokens": reasoning}
    return {**figures, "cache_read_tokens": cache_read, "cache_write_tokens": cache_write} if prompt else None


def with_texts(
    parts: Iterable[Any], texts: Sequence[Any], is_text: Callable[[Any], bool], is_call: Callable[[Any], bool]
) -> list[Any]:
    """Replaces the texts among the parts of a model's message.

    The new texts take the place of the first old one. If there was none, they go before the first call, but after parts that
    have to come first, such as signed thinking.
    """
    result, texts = list[Any](), list(texts)
    for part in parts:
        if is_text(part) or is_call(part):
            result += texts
            texts = []
        if not is_text(part):
            result.append(part)
    return result + texts


def rewritten(
    piece: Piece[_Message],
    chat: Chat,
    is_text: Callable[[Any], bool],
    call_id: Callable[[Any], str | None],
    text: Callable[[str], Any],
    call: Callable[[Any, str], Any],
) -> Piece[_Message]:
    """Returns a piece with the text and the arguments of ``chat``. All other parts stay as they are.

    ``call_id`` returns ``None`` for a part that is not a call. ``text`` makes a part from a text, and ``call`` returns a call
    with other arguments.
    """
    before, after = arguments_of(piece.chat), arguments_of(chat)
    parts: list[Any] = []
    for part in piece.parts:
        id = call_id(part)
        parts.append(part if id is None or after[id] == before[id] else call(part, after[id]))
    if text_of(chat) != text_of(piece.chat):
        parts = with_texts(parts, [text(text_of(chat))], is_text, lambda part: call_id(part) is not None)
    return Piece(chat, piece.message, parts)


def arguments_of(chat: Chat) -> dict[str, str]:
    """Returns the arguments of a message's calls as JSON, by the ids of the calls."""
    return {call["id"]: call["function"]["arguments"] for call in chat.get("tool_calls") or []}
