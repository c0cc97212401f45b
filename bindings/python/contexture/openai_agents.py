"""Contexture in runs of the OpenAI Agents SDK.

>>> from contexture.openai_agents import ContextureRun                                     # doctest: +SKIP
>>> run = ContextureRun(contexture.Host(), "work", "gpt-5.2", 128_000, engine="lcm")       # doctest: +SKIP
>>> agent = Agent("Coder", model="gpt-5.2", tools=[*tools, *run.tools])                    # doctest: +SKIP
>>> await Runner.run(agent, "Go on.", session=sdk_session, hooks=run, run_config=run.config()) # doctest: +SKIP

The runner and its session keep the whole conversation; only what the model sees is compacted. Conversations that the provider
keeps (``conversation_id``, ``previous_response_id``) are not compacted, since their history never comes by here.
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
    """One conversation, through any number of runs.

    A run needs three things of it: the hooks (the object itself), the filter (in ``config()``), and for the engine's tools,
    ``tools`` among the agent's tools.
    """

    def __init__(
        self, host: Host, session_id: str, model: str, context_length: int, **options: Unpack[Options]
    ) -> None:
        # The SDK speaks in items of the Responses API, whichever API the model has.
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
    """A tool as the Responses API has it. Of tools that the provider runs, only the name is known here."""
    definition = {"type": "function", "name": tool.name}
    if isinstance(tool, FunctionTool):
        definition |= {"description": tool.description, "parameters": tool.params_json_schema}
    return definition
