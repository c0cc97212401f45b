"""Contexture as a callback of LiteLLM.

``litellm.callbacks.append(callback)``, and then ``litellm.acompletion(..., litellm_session_id="work")``: the caller keeps
the whole conversation, passes it with each call, and runs the tools. ``callback.tools`` are the engine's tools, and
``callback.call_tool`` answers their calls. Calls without a ``litellm_session_id`` are not touched. Of a stream, LiteLLM
only knows the provider's usage if the request has ``stream_options={"include_usage": True}``.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._adapter import Chat, Piece, Sessions, tool, window
from ._aio import _in_thread
from ._native import ArgumentError, Host

try:
    from litellm import ModelResponse
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.types.utils import CallTypes
except ImportError as error:
    raise ImportError("contexture.litellm needs LiteLLM: pip install 'litellm>=1.110'") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._adapter import Options

#: The calls that have a list of messages.
_CALLS = (CallTypes.acompletion, CallTypes.completion)


#: What LiteLLM reports in place of an answer with ``turn_off_message_logging``. The answer comes with the next request.
_REDACTED = "redacted-by-litellm"


@dataclass
class _Stream:
    """A stream that LiteLLM has not reported yet."""

    session: str
    has_usage: bool
    log: Any

    @property
    def has_ended(self) -> bool:
        """Whether it was read to its end. LiteLLM then calls one callback after the other, which may take a while."""
        return bool(self.log.model_call_details.get("has_dispatched_final_stream_success"))


class ContextureCallback(CustomLogger):
    """Keeps the calls of this process that name a session inside the model's window."""

    #: How many seconds a request waits for LiteLLM's report of the stream before it.
    PATIENCE = 5.0

    def __init__(self, host: Host, model: str, context_length: int, **options: Unpack[Options]) -> None:
        super().__init__()
        self.sessions = Sessions(host, model, context_length, **options)
        self._streams: dict[str, _Stream] = {}  # by the id of the call
        #: LiteLLM reports to one of those callbacks whose public attributes are the same.
        self.number = id(self)
        #: The engine's tools, as a request has them.
        self.tools: list[dict[str, Any]] = [tool(**one) for one in self.sessions.tools()]

    async def call_tool(self, session_id: str, name: str, arguments: dict[str, Any] | str) -> str:
        """Answers a call of one of the engine's tools."""
        return await _in_thread(self.sessions.call_tool, session_id, name, arguments)

    async def async_pre_call_deployment_hook(
        self, kwargs: dict[str, Any], call_type: CallTypes | None
    ) -> dict[str, Any] | None:
        """Compacts the request if that is due."""
        id = kwargs.get("litellm_session_id")
        if not id or call_type not in _CALLS:
            return None
        if "messages" not in kwargs:
            raise ArgumentError("pass `messages` to LiteLLM by its name: a positional argument does not reach a callback")
        call: str = kwargs["litellm_call_id"]
        self._streams.pop(call, None)  # of an attempt that failed
        await self._wait_for_streams(id)
        turn = await _in_thread(self.sessions.turn, id, {"messages": kwargs["messages"], "tools": kwargs.get("tools")})
        if kwargs.get("stream"):
            has_usage = bool((kwargs.get("stream_options") or {}).get("include_usage"))
            self._streams[call] = _Stream(id, has_usage, kwargs["litellm_logging_obj"])
        if not turn.changed:
            return None
        pieces: list[Piece[Chat]] = [Piece(message, message) for message in kwargs["messages"]]
        result = window(turn, pieces, lambda _, chat: Piece(chat, chat), lambda chat: Piece(chat, chat))
        return {**kwargs, "messages": [message for message, _ in result]}

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: CallTypes | None
    ) -> None:
        """Shows the session the answer."""
        id = request_data.get("litellm_session_id")
        if id and call_type in _CALLS and isinstance(response, ModelResponse):
            await self._answer(id, response, getattr(response, "usage", None))

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Shows the session an answer that was streamed. LiteLLM calls this a moment after the end of the stream."""
        call, response = kwargs.get("litellm_call_id", ""), kwargs.get("async_complete_streaming_response")
        stream = self._streams.get(call)
        if stream is None or not isinstance(response, ModelResponse):
            return
        try:
            if response.choices[0].message.content == _REDACTED:
                return
            # Otherwise LiteLLM estimates the usage.
            await self._answer(stream.session, response, getattr(response, "usage", None) if stream.has_usage else None)
        finally:
            self._streams.pop(call, None)

    async def _answer(self, id: str, response: ModelResponse, usage: Any) -> None:
        message = response.choices[0].message.model_dump(exclude_none=True)
        await _in_thread(self.sessions.answer, id, message, usage)

    async def _wait_for_streams(self, id: str) -> None:
        """Waits until the session was shown the answer before this request. Otherwise, it comes with the request."""
        until = time.monotonic() + self.PATIENCE
        await asyncio.sleep(0)  # in which LiteLLM notes that a stream has ended
        while open := {call: stream for call, stream in self._streams.items() if stream.session == id}:
            if time.monotonic() > until or not any(stream.has_ended for stream in open.values()):
                for call in open:
                    self._streams.pop(call, None)
                return
            await asyncio.sleep(0.005)
