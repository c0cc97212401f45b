"""Contexture as a capability of Pydantic AI's agents.

``Agent(model, capabilities=[ContextureCapability(host, "gpt-5.2", 400_000, engine="lcm")])``: the messages of a run stay
whole, and only what the model sees is compacted. The agent gets the engine's tools. Each conversation has its own session.
Its id is the ``conversation_id``, which Pydantic AI finds in the ``message_history``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ._adapter import Chat, Piece, Sessions, assistant, rewritten, text_of, tool, usage, window
from ._aio import _in_thread
from ._native import Host

try:
    from pydantic_ai import FunctionToolset, RunContext, Tool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import BinaryImage, ImageUrl, InstructionPart, ModelMessage, ModelRequest, ModelResponse
    from pydantic_ai.messages import SystemPromptPart, TextContent, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
    from pydantic_ai.models import ModelRequestContext
except ImportError as error:
    raise ImportError("contexture.pydantic_ai needs Pydantic AI: pip install 'pydantic-ai-slim>=2.68'") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._adapter import Options


class ContextureCapability(AbstractCapability[Any]):
    """Keeps an agent inside its model's window. With ``session_id``, all runs share one session."""

    def __init__(
        self, host: Host, model: str, context_length: int, *, session_id: str | None = None, **options: Unpack[Options]
    ) -> None:
        self.sessions = Sessions(host, model, context_length, **options)
        self.session_id = session_id

    def get_toolset(self) -> FunctionToolset[Any]:
        """The engine's tools."""
        return FunctionToolset([self._tool(**tool) for tool in self.sessions.tools()])

    async def prepare_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """Compacts the request if that is due."""
        parameters = request_context.model_request_parameters
        instructions = parameters.instruction_parts or []
        prompt = InstructionPart.join(instructions)
        pieces = [piece for message in request_context.messages for piece in _pieces(message)]
        body = {
            "messages": [*([{"role": "system", "content": prompt}] if prompt else []), *(piece.chat for piece in pieces)],
            "tools": [tool(one.name, one.description, one.parameters_json_schema) for one in parameters.function_tools],
        }
        turn = await _in_thread(self.sessions.turn, self._id(ctx), body)
        if not turn.changed:
            return request_context
        if prompt:
            pieces.insert(0, Piece(body["messages"][0], ModelRequest([])))
        result: list[tuple[Any, list[Any]]] = window(turn, pieces, _changed, _added)
        if prompt:
            notes = result.pop(0)[1]
            parameters = dataclasses.replace(parameters, instruction_parts=[*instructions, *notes])
        messages = [one if parts == one.parts else dataclasses.replace(one, parts=parts) for one, parts in result]
        return dataclasses.replace(request_context, messages=messages, model_request_parameters=parameters)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Shows the session the answer."""
        used = response.usage
        reported = usage(used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens)
        await _in_thread(self.sessions.answer, self._id(ctx), _pieces(response)[0].chat, reported)
        return response

    def _id(self, ctx: RunContext[Any]) -> str | None:
        return self.session_id or ctx.conversation_id

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> Tool[Any]:
        async def call(ctx: RunContext[Any], **arguments: Any) -> str:
            return await _in_thread(self.sessions.call_tool, self._id(ctx), name, arguments)

        return Tool.from_schema(call, name, description, parameters, takes_ctx=True)


def _pieces(message: ModelMessage) -> list[Piece[ModelMessage]]:
    """Returns a piece for each part of a request, or one for a response."""
    if isinstance(message, ModelRequest):
        return [Piece(_chat(part), message, [part]) for part in message.parts]
    calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
    text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
    chat = assistant(text, ((part.tool_call_id, part.tool_name, part.args_as_json_str()) for part in calls))
    return [Piece(chat, message, message.parts)]


def _chat(part: Any) -> Chat:
    """Returns a part of a request in the form of chat completions. A file is only named there."""
    match part:
        case SystemPromptPart():
            return {"role": "system", "content": part.content}
        case ToolReturnPart():
            return {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
        case UserPromptPart(content=content) if not isinstance(content, str):
            return {"role": "user", "content": [_block(item) for item in content]}
        case _:
            return {"role": "user", "content": str(getattr(part, "content", ""))}


def _block(item: Any) -> Chat:
    if isinstance(item, ImageUrl | BinaryImage):
        return {"type": "image_url", "image_url": {"url": item.url if isinstance(item, ImageUrl) else item.data_uri}}
    if _is_text(item):
        return {"type": "text", "text": item if isinstance(item, str) else item.content}
    return {"type": "file", "file": {"file_id": getattr(item, "identifier", "")}}


def _is_text(item: Any) -> bool:
    return isinstance(item, str | TextContent)


def _changed(piece: Piece[ModelMessage], chat: Chat) -> Piece[ModelMessage]:
    """Returns a piece with the text and the arguments of ``chat``. Everything else, such as signed thinking, is kept."""
    text = text_of(chat)
    if not piece.parts:
        # The system prompt. Only the addition is returned, so that the parts before it can still be cached one by one.
        return Piece(chat, piece.message, [InstructionPart(text.removeprefix(text_of(piece.chat)).strip())])
    if isinstance(piece.message, ModelRequest):
        [part] = piece.parts
        is_list = isinstance(part, UserPromptPart) and not isinstance(part.content, str)
        content: Any = [text, *(item for item in part.content if not _is_text(item))] if is_list else text
        return Piece(chat, piece.message, [dataclasses.replace(part, content=content)])
    return rewritten(
        piece,
        chat,
        is_text=lambda part: isinstance(part, TextPart),
        call_id=lambda part: part.tool_call_id if isinstance(part, ToolCallPart) else None,
        text=TextPart,
        call=lambda part, arguments: dataclasses.replace(part, args=arguments),
    )


def _added(chat: Chat) -> Piece[ModelMessage]:
    if chat["role"] == "assistant":
        response = ModelResponse([TextPart(text_of(chat))])
        return Piece(chat, response, response.parts)
    part = UserPromptPart(text_of(chat))
    return Piece(chat, ModelRequest([part]), [part])
