"""Contexture as a callback of LiteLLM.

``litellm.callbacks.append(callback)``, and then ``litellm.acompletion(..., litellm_session_id="work")``: the caller keeps
the whole conversation, passes it with each call, and runs the tools. ``callback.tools`` are the engine's tools, and
``callback.call_tool`` answers their calls. Calls without a ``litellm_session_id`` are not touched. If the answer is a
stream, the session reads it with the next request.
"""

from __future__ import annotations

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


class ContextureCallback(CustomLogger):
    """Keeps the calls of this process that name a session inside the model's window."""

    def __init__(self, host: Host, model: str, context_length: int, **options: Unpack[Options]) -> None:
        super().__init__()
        self.sessions = Sessions(host, model, context_length, **options)
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
        turn = await _in_thread(self.sessions.turn, id, {"messages": kwargs["messages"], "tools": kwargs.get("tools")})
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
            message = response.choices[0].message.model_dump(exclude_none=True)
            await _in_thread(self.sessions.answer, id, message, getattr(response, "usage", None))
