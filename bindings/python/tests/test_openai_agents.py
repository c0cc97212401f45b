"""A run of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, shell

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed: pip install openai-agents")

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, RunConfig, SQLiteSession
from agents import function_tool
from openai import AsyncOpenAI

from contexture.openai_agents import ContextureRun


#: The model, whether it streams, and where summaries go.
CASES = [
    pytest.param(OpenAIResponsesModel, False, "folded", id="responses"),
    pytest.param(OpenAIResponsesModel, True, "own", id="extra_stream"),
    pytest.param(OpenAIChatCompletionsModel, False, "own", id="extra_chat"),
]


@pytest.mark.parametrize(("model", "streams", "summaries"), CASES)
def test_sixty_rounds_stay_inside_the_window(
    host: contexture.Host, provider: Provider, model: Any, streams: bool, summaries: Any
) -> None:
    calls: list[str] = []

    @function_tool
    def bash(command: str) -> str:
        """Runs a command."""
        return shell(calls, command)

    client = AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="none", max_retries=0)
    run = ContextureRun(host, "harbour", MODEL, WINDOW, engine="lcm", summaries=summaries)
    agent = Agent("Coder", instructions=SYSTEM, model=model(MODEL, client), tools=[bash, *run.tools])
    session = SQLiteSession("harbour")

    async def go() -> str:
        config = run.config(RunConfig(tracing_disabled=True))
        options: Any = {"session": session, "hooks": run, "run_config": config, "max_turns": 100}
        if streams:
            result: Any = Runner.run_streamed(agent, TASK, **options)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, TASK, **options)
        stored = await session.get_items()
        # The SDK's session has all of it.
        assert sum(item.get("type") == "function_call_output" for item in stored) == len(calls) + 3
        return str(result.final_output)

    check(provider, run.sessions, asyncio.run(go()), calls)
