"""An agent of Pydantic AI's with the capability."""

from __future__ import annotations

from typing import Any

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, provider, shell  # noqa: F401

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed: pip install 'pydantic-ai-slim[openai]'")

from pydantic_ai import Agent, UsageLimits  # noqa: E402
from contexture.pydantic_ai import ContextureCapability  # noqa: E402


OPENAI = "pydantic_ai.providers.openai.OpenAIProvider"
#: The model, its provider, and where summaries go.
CASES: list[tuple[Any, ...]] = [
    ("pydantic_ai.models.openai.OpenAIChatModel", OPENAI, MODEL, "/v1", "folded"),
    ("pydantic_ai.models.openai.OpenAIResponsesModel", OPENAI, MODEL, "/v1", "own"),
    *(
        (
            "pydantic_ai.models.anthropic.AnthropicModel",
            "pydantic_ai.providers.anthropic.AnthropicProvider",
            "claude-opus-4-5",
            "",
            summaries,
        )
        for summaries in ("own", "folded")
    ),
]
CLAUDE: Any = {"max_tokens": 2000, "anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}}


def load(name: str) -> Any:
    module, _, kind = name.rpartition(".")
    reason = f"{module} cannot be imported: pip install 'pydantic-ai-slim[openai,anthropic]'"
    return getattr(pytest.importorskip(module, reason=reason, exc_type=ImportError), kind)


@pytest.mark.parametrize(("model", "service", "name", "path", "summaries"), CASES)
def test_a_long_run_stays_inside_the_window(
    host: contexture.Host, provider: Provider, model: str, service: str, name: str, path: str, summaries: Any  # noqa: F811
) -> None:
    calls: list[str] = []
    capability = ContextureCapability(host, name, WINDOW, engine="lcm", summaries=summaries)
    client = load(model)(name, provider=load(service)(base_url=f"{provider.url}{path}", api_key="none"))
    settings = CLAUDE if name != MODEL else None
    agent = Agent(client, instructions=SYSTEM, capabilities=[capability], model_settings=settings)

    @agent.tool_plain
    def bash(command: str) -> str:
        """Runs a command."""
        return shell(calls, command)

    result = agent.run_sync(TASK, conversation_id="harbour", usage_limits=UsageLimits(request_limit=100))
    check(provider, capability.sessions, result.output, calls)
    # The run has all of it.
    returned = [part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"]
    assert len(returned) == len(calls) + 3
