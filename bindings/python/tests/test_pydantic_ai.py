"""An agent of Pydantic AI's with the capability."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, shell

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed: pip install 'pydantic-ai-slim[openai]'")

from pydantic_ai import Agent, UsageLimits

from contexture.pydantic_ai import ContextureCapability

OPENAI = "pydantic_ai.providers.openai.OpenAIProvider"
ANTHROPIC = "pydantic_ai.providers.anthropic.AnthropicProvider"

#: The model, its provider, whether it streams, and where summaries go.
CASES = [
    pytest.param("pydantic_ai.models.openai.OpenAIChatModel", OPENAI, False, "folded", id="chat"),
    pytest.param("pydantic_ai.models.openai.OpenAIResponsesModel", OPENAI, True, "own", id="extra_responses_stream"),
    pytest.param("pydantic_ai.models.anthropic.AnthropicModel", ANTHROPIC, False, "folded", id="extra_anthropic"),
    pytest.param("pydantic_ai.models.anthropic.AnthropicModel", ANTHROPIC, True, "own", id="extra_anthropic_stream"),
]
CLAUDE: Any = {"max_tokens": 2000, "anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}}


def load(name: str) -> Any:
    module, _, kind = name.rpartition(".")
    reason = f"{module} cannot be imported: pip install 'pydantic-ai-slim[openai,anthropic]'"
    return getattr(pytest.importorskip(module, reason=reason, exc_type=ImportError), kind)


@pytest.mark.parametrize(("model", "service", "streams", "summaries"), CASES)
def test_sixty_rounds_stay_inside_the_window(
    host: contexture.Host, provider: Provider, model: str, service: str, streams: bool, summaries: Any
) -> None:
    calls: list[str] = []
    name, url, settings = MODEL, f"{provider.url}/v1", None
    if service == ANTHROPIC:
        name, url, settings = "claude-opus-4-5", provider.url, CLAUDE
    capability = ContextureCapability(host, name, WINDOW, engine="lcm", summaries=summaries)
    client = load(model)(name, provider=load(service)(base_url=url, api_key="none"))
    agent = Agent(client, instructions=SYSTEM, capabilities=[capability], model_settings=settings)

    @agent.tool_plain
    def bash(command: str) -> str:
        """Runs a command."""
        return shell(calls, command)

    async def go() -> Any:
        options: Any = {"conversation_id": "harbour", "usage_limits": UsageLimits(request_limit=100)}
        if not streams:
            return await agent.run(TASK, **options)
        async with agent.run_stream_events(TASK, **options) as events:
            return [event async for event in events][-1]

    result = asyncio.run(go())
    result = result.result if streams else result
    check(provider, capability.sessions, result.output, calls)
    # The run has all of it.
    returned = [part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"]
    assert len(returned) == len(calls) + 3
