"""Contexture in runs of the OpenAI Agents SDK.

``Runner.run(agent, "Hello", hooks=run, run_config=run.config())``, with ``run.tools`` among the agent's tools: the SDK keeps
the whole conversation, and only what the model sees is compacted. If the provider keeps the conversation
(``conversation_id``, ``previous_response_id``), the history is not in the request, so nothing is compacted.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ._adapter import Sessions, usage
from ._aio import _in_thread
from ._native import Host

try:
    from agents import Agent, FunctionTool, ModelResponse, RunConfig, RunContextWrapper, RunHooks
    from agents.run_config import CallModelData, ModelInputData
    from agents.tool_context import ToolContext
except ImportError as error:
    raise ImportError("contexture.openai_agents needs the OpenAI Agents SDK: pip install 'openai-agents>=0.24'") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._adapter import Options


class ContextureRun(RunHooks[Any]):
    """One conversation, with any number of runs.

    Pass the object itself as the ``hooks`` of a run and ``config()`` as its ``run_config``, and give the agent its ``tools``.
    """

    def __init__(
        self, host: Host, session_id: str, model: str, context_length: int, **options: Unpack[Options]
    ) -> None:
        # The SDK uses items of the Responses API, whichever API the model has.
        self.sessions = Sessions(host, model, context_length, "responses", **options)
        self.session_id = session_id
        #: The engine's tools.
        self.tools: list[Any] = [self._tool(**tool) for tool in self.sessions.tools()]

    def config(self, base: RunConfig | None = None) -> RunConfig:
        """A run's configuration with the filter that compacts."""
        return dataclasses.replace(base or RunConfig(), call_model_input_filter=self.filter)

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Compacts what the model is about to see, if that is due."""
        given = data.model_data
        body: dict[str, Any] = {"input": given.input, "tools": [_definition(tool) for tool in data.agent.tools]}
        if given.instructions:
            body["instructions"] = given.instructions
        turn = await _in_thread(self.sessions.turn, self.session_id, body)
        return ModelInputData(input=turn.messages, instructions=turn.body.get("instructions"))

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Shows the session the answer."""
        used, read = response.usage, response.usage.input_tokens_details
        written = getattr(read, "cache_write_tokens", None)
        reasoning = used.output_tokens_details.reasoning_tokens
        reported = usage(used.input_tokens, used.output_tokens, read.cached_tokens, written, reasoning)
        await _in_thread(self.sessions.answer, self.session_id, response.to_input_items(), reported)

    def _tool(self, name: str, description: str, parameters: dict[str, Any]) -> FunctionTool:
        async def call(context: ToolContext[Any], arguments: str) -> str:
            return await _in_thread(self.sessions.call_tool, self.session_id, name, arguments)

        return FunctionTool(name, description, parameters, call, strict_json_schema=False)


def _definition(tool: Any) -> dict[str, Any]:
    """Returns a tool in the form of the Responses API. Of a tool that the provider runs, only the name is known."""
    definition = {"type": "function", "name": tool.name}
    if isinstance(tool, FunctionTool):
        definition |= {"description": tool.description, "parameters": tool.params_json_schema}
    return definition
