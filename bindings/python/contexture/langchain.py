"""Contexture as a middleware of LangChain's agents.

``create_agent(model, tools, middleware=[ContextureMiddleware(host, "gpt-5.2", 400_000, engine="lcm")])``: the agent's state
keeps the whole conversation, and only what the model sees is compacted. The agent gets the engine's tools. Each thread has
its own session.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ._adapter import Chat, Piece, Sessions, arguments_of, usage, window, with_texts
from ._aio import _in_thread
from ._native import Host

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain.tools import ToolRuntime
    from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
    from langchain_core.messages import convert_to_messages, convert_to_openai_messages
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as error:
    raise ImportError("contexture.langchain needs LangChain: pip install 'langchain>=1.5'") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._adapter import Options

#: The blocks that a session reads. Other blocks, such as signed thinking, stay in the message.
_BLOCKS = ("text", "image_url", "input_audio", "file")

#: Blocks that repeat a call of ``tool_calls``.
_CALLS = ("tool_use", "function_call", "tool_call")


class ContextureMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Keeps an agent inside its model's window.

    The id of a session is that of the thread (``config={"configurable": {"thread_id": ...}}``). An agent without threads needs
    a ``session_id``. If several agents share a thread, give each of them a name with ``agent``.
    """

    def __init__(
        self,
        host: Host,
        model: str,
        context_length: int,
        *,
        session_id: str | None = None,
        agent: str = "",
        **options: Unpack[Options],
    ) -> None:
        self.sessions = Sessions(host, model, context_length, **options)
        self._session_id, self._agent = session_id, agent
        self.tools: list[BaseTool] = [self._tool(**tool) for tool in self.sessions.tools()]

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Compacts the request if that is due, and shows the session the answer."""
        response = handler(self._turn(request))
        self._answer(request, response)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """As ``wrap_model_call``, without blocking the loop."""
        response = await handler(await _in_thread(self._turn, request))
        await _in_thread(self._answer, request, response)
        return response

    def _id(self, thread: str | None) -> str | None:
        id = self._session_id or thread
        return f"{id}/{self._agent}" if id and self._agent else id

    def _thread(self, request: ModelRequest[Any]) -> str | None:
        info = request.runtime.execution_info
        return self._id(info.thread_id if info else None)

    def _turn(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        own = [*([request.system_message] if request.system_message else []), *request.messages]
        pieces: list[Piece[BaseMessage]] = [Piece(_chat(message), message) for message in own]
        tools = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools]
        turn = self.sessions.turn(self._thread(request), {"messages": [piece.chat for piece in pieces], "tools": tools})
        if not turn.changed:
            return request
        messages: list[Any] = [message for message, _ in window(turn, pieces, _changed, _added)]
        if messages and isinstance(messages[0], SystemMessage):
            return request.override(system_message=messages[0], messages=messages[1:])
        return request.override(messages=messages)

    def _answer(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
        for message in response.result:
            if isinstance(message, AIMessage):
                self.sessions.answer(self._thread(request), _chat(message), _usage(message.usage_metadata or {}))

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> BaseTool:
        def call(runtime: ToolRuntime[Any, Any], **arguments: Any) -> str:
            thread = self._id(runtime.config.get("configurable", {}).get("thread_id"))
            return self.sessions.call_tool(thread, name, arguments)

        return StructuredTool(name=name, description=description, args_schema=parameters, func=call)


def _chat(message: BaseMessage) -> Chat:
    """Returns a message in the form of chat completions."""
    chat = convert_to_openai_messages(message)
    if not isinstance(chat, dict):
        return {"role": "user", "content": message.text}
    if isinstance(chat.get("content"), list):
        chat["content"] = [block for block in chat["content"] if block.get("type") in _BLOCKS]
    return chat


def _changed(piece: Piece[BaseMessage], chat: Chat) -> Piece[BaseMessage]:
    """Returns a piece with the content and the arguments of ``chat``. Everything else, such as signed thinking, is kept."""
    message, update = piece.message, dict[str, Any]()
    if chat.get("content") != piece.chat.get("content"):
        content = chat.get("content") or ""
        if isinstance(message.content, list) and not all(_is_text(block) for block in message.content):
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            content = with_texts(message.content, blocks, _is_text, lambda block: block.get("type") in _CALLS)
        update["content"] = content
    if isinstance(message, AIMessage):
        arguments = arguments_of(chat)
        update["tool_calls"] = [{**call, "args": json.loads(arguments[call["id"] or ""])} for call in message.tool_calls]
    return Piece(chat, message.model_copy(update=update))


def _is_text(block: str | dict[str, Any]) -> bool:
    return isinstance(block, str) or block.get("type") in _BLOCKS


def _added(chat: Chat) -> Piece[BaseMessage]:
    return Piece(chat, convert_to_messages([chat])[0])


def _usage(tokens: Any) -> dict[str, int | None] | None:
    read, written = tokens.get("input_token_details", {}), tokens.get("output_token_details", {})
    cached = read.get("cache_read"), read.get("cache_creation")
    return usage(tokens.get("input_tokens"), tokens.get("output_tokens"), *cached, written.get("reasoning"))
