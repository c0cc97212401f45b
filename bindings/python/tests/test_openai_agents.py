"""A run of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, provider, shell  # noqa: F401

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed: pip install openai-agents")

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, RunConfig, SQLiteSession  # noqa: E402
from agents import function_tool  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402

from contexture.openai_agents import ContextureRun  # noqa: E402


@pytest.mark.parametrize(("model", "summaries"), [(OpenAIResponsesModel, "folded"), (OpenAIChatCompletionsModel, "own")])
def test_a_long_run_stays_inside_the_window(
    host: contexture.Host, provider: Provider, model: Any, summaries: Any  # noqa: F811
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
        result = await Runner.run(agent, TASK, session=session, hooks=run, run_config=config, max_turns=100)
        stored = await session.get_items()
        # The SDK's session has all of it.
        assert sum(item.get("type") == "function_call_output" for item in stored) == len(calls) + 3
        return str(result.final_output)

    check(provider, run.sessions, asyncio.run(go()), calls)
