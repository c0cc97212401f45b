"""An agent of LangChain's with the middleware."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, shell

pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain")

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from contexture.langchain import ContextureMiddleware

#: Without these, the client leaves out the reasoning that belongs to a call.
RESPONSES = {"output_version": "responses/v1", "store": False, "include": ["reasoning.encrypted_content"]}
CLAUDE = {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
OPENAI, ANTHROPIC = "langchain_openai.ChatOpenAI", "langchain_anthropic.ChatAnthropic"

#: The model, whether the agent runs in a loop of asyncio, and where summaries go.
CASES = [
    pytest.param(OPENAI, {"model": MODEL}, False, "folded", id="chat"),
    pytest.param(OPENAI, {"model": MODEL}, True, "own", id="extra_async"),
    pytest.param(OPENAI, {"model": MODEL, **RESPONSES}, False, "own", id="extra_responses"),
    pytest.param(ANTHROPIC, {"model": "claude-opus-4-5", **CLAUDE}, False, "own", id="extra_anthropic"),
    pytest.param(ANTHROPIC, {"model": "claude-opus-4-5", **CLAUDE}, True, "folded", id="extra_anthropic_async"),
]


@pytest.mark.parametrize(("name", "options", "is_async", "summaries"), CASES)
def test_sixty_rounds_stay_inside_the_window(
    host: contexture.Host,
    provider: Provider,
    name: str,
    options: dict[str, Any],
    is_async: bool,
    summaries: Any,
) -> None:
    package, _, kind = name.partition(".")
    module = pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    url = provider.url if name == ANTHROPIC else f"{provider.url}/v1"
    model = getattr(module, kind)(base_url=url, api_key="none", max_retries=0, **options)
    calls: list[str] = []

    def bash(command: str) -> str:
        """Runs a command."""
        return shell(calls, command)

    middleware = ContextureMiddleware(host, options["model"], WINDOW, engine="lcm", summaries=summaries)
    agent = create_agent(model, [bash], system_prompt=SYSTEM, middleware=[middleware], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "harbour"}, "recursion_limit": 500}
    asked = {"messages": [{"role": "user", "content": TASK}]}
    state = asyncio.run(agent.ainvoke(asked, config)) if is_async else agent.invoke(asked, config)
    check(provider, middleware.sessions, state["messages"][-1].text, calls)
    # The state has all of it.
    assert sum(message.type == "tool" for message in state["messages"]) == len(calls) + 3
