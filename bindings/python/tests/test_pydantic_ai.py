"""An agent of Pydantic AI's with the capability."""

from __future__ import annotations

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, provider, shell  # noqa: F401

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed: pip install 'pydantic-ai-slim[openai]'")

from pydantic_ai import Agent, UsageLimits  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

from contexture.pydantic_ai import ContextureCapability  # noqa: E402


@pytest.mark.parametrize("model", [OpenAIChatModel, OpenAIResponsesModel])
def test_a_long_run_stays_inside_the_window(host: contexture.Host, provider: Provider, model: type) -> None:  # noqa: F811
    calls: list[str] = []
    capability = ContextureCapability(host, MODEL, WINDOW, engine="lcm")
    openai = OpenAIProvider(base_url=f"{provider.url}/v1", api_key="none")
    agent = Agent(model(MODEL, provider=openai), instructions=SYSTEM, capabilities=[capability])

    @agent.tool_plain
    def bash(command: str) -> str:
        """Runs a command."""
        return shell(calls, command)

    result = agent.run_sync(TASK, conversation_id="harbour", usage_limits=UsageLimits(request_limit=100))
    check(provider, host, "harbour", result.output, calls)
    # The run has all of it.
    returned = [part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"]
    assert len(returned) == len(calls) + 3
