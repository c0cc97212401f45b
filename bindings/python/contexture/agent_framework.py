"""Contexture as a chat middleware of Microsoft's Agent Framework.

``Agent(client, tools=middleware.tools, middleware=[middleware])``: the agent's session keeps the whole conversation, and
only what the model sees is compacted. The id of the session is also that of Contexture's session. If the provider keeps the
conversation, the history is not in the request, so nothing is compacted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ._adapter import Chat, Piece, Sessions, assistant, rewritten, text_of, tool, usage, window
from ._aio import _in_thread
from ._native import Host

try:
    from agent_framework import AgentSession, ChatContext, ChatMiddleware, ChatResponse, Content
    from agent_framework import FunctionInvocationContext, FunctionTool, Message
except ImportError as error:
    raise ImportError("contexture.agent_framework needs Agent Framework: pip install 'agent-framework-core>=1.23'") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._adapter import Options


class ContextureMiddleware(ChatMiddleware):
    """Keeps an agent inside its model's window. An agent that runs without sessions needs a ``session_id``."""

    def __init__(
        self, host: Host, model: str, context_length: int, *, session_id: str | None = None, **options: Unpack[Options]
    ) -> None:
        self.sessions = Sessions(host, model, context_length, **options)
        self.session_id = session_id
        #: The engine's tools.
        self.tools: list[Any] = [self._tool(**one) for one in self.sessions.tools()]

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Compacts the request if that is due, and shows the session the answer."""
        id = self._id(context.session)
        options = dict(context.options or {})
        prompt = options.get("instructions")
        pieces = [piece for message in context.messages for piece in _pieces(message)]
        if prompt:
            instructions = Message("system", [prompt])
            pieces[:0] = _pieces(instructions)
        tools = [
            tool(one.name, one.description, one.parameters())
            for one in options.get("tools") or []
            if isinstance(one, FunctionTool)
        ]
        turn = await _in_thread(self.sessions.turn, id, {"messages": [piece.chat for piece in pieces], "tools": tools})
        if turn.changed:
            messages = [one for message in window(turn, pieces, _changed, _added) for one in _messages(*message)]
            if prompt:
                context.options = {**options, "instructions": messages.pop(0).text}
            context.messages = messages

        async def answered(response: ChatResponse[Any]) -> ChatResponse[Any]:
            await _in_thread(self._answer, id, response)
            return response

        if context.stream:
            context.stream_result_hooks.append(answered)
        await call_next()
        if isinstance(context.result, ChatResponse):
            await answered(context.result)

    def _answer(self, id: str | None, response: ChatResponse[Any]) -> None:
        tokens = response.usage_details or {}
        reported = usage(
            tokens.get("input_token_count"),
            tokens.get("output_token_count"),
            tokens.get("cache_read_input_token_count"),
            tokens.get("cache_creation_input_token_count"),
            tokens.get("reasoning_output_token_count"),
        )
        for message in response.messages:
            if message.role == "assistant":
                self.sessions.answer(id, _pieces(message)[0].chat, reported)

    def _id(self, session: AgentSession | None) -> str | None:
        return self.session_id or (session.session_id if session else None)

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> FunctionTool:
        async def call(context: FunctionInvocationContext, **arguments: Any) -> str:
            return await _in_thread(self.sessions.call_tool, self._id(context.session), name, arguments)

        return FunctionTool(name=name, description=description, func=call, input_model=parameters)


def _pieces(message: Message) -> list[Piece[Message]]:
    """Returns a piece for each tool result of a message, or one for any other message."""
    if message.role == "tool":
        return [
            Piece({"role": "tool", "tool_call_id": one.call_id, "content": str(one.result or "")}, message, [one])
            for one in message.contents
        ]
    text = "".join(one.text or "" for one in message.contents if one.type == "text")
    if message.role == "assistant":
        calls = [one for one in message.contents if one.type == "function_call"]
        chat = assistant(text, ((one.call_id, one.name, one.arguments) for one in calls))
    elif all(one.type == "text" for one in message.contents):
        chat = {"role": message.role, "content": text}
    else:
        chat = {"role": message.role, "content": [_block(one) for one in message.contents]}
    return [Piece(chat, message, message.contents)]


def _messages(message: Message, parts: list[Content]) -> list[Message]:
    """Returns a message with these parts. A client may send calls before text, so new text becomes a message of its own."""
    if parts == message.contents:
        return [message]
    groups = [parts]
    if message.role == "assistant":
        groups = [[one for one in parts if one.type == "text"], [one for one in parts if one.type != "text"]]
    return [Message(message.role, group, author_name=message.author_name) for group in groups if group]


def _block(content: Content) -> Chat:
    if content.type in ("uri", "data") and (content.media_type or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": content.uri}}
    if content.type == "text":
        return {"type": "text", "text": content.text}
    return {"type": "file", "file": {"file_id": content.file_id or content.uri}}


def _changed(piece: Piece[Message], chat: Chat) -> Piece[Message]:
    """Returns a piece with the text and the arguments of ``chat``. Everything else, such as reasoning, is kept."""
    if piece.message.role == "tool":
        return Piece(chat, piece.message, [Content.from_function_result(chat["tool_call_id"], result=text_of(chat))])
    return rewritten(
        piece,
        chat,
        is_text=lambda part: part.type == "text",
        call_id=lambda part: part.call_id if part.type == "function_call" else None,
        text=Content.from_text,
        call=lambda part, arguments: Content.from_function_call(part.call_id, part.name, arguments=arguments),
    )


def _added(chat: Chat) -> Piece[Message]:
    message = Message(chat["role"], [text_of(chat)])
    return Piece(chat, message, message.contents)
