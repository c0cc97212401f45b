"""An agent of LangChain's with the middleware."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, provider, shell  # noqa: F401

pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain")

from langchain.agents import create_agent  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

from contexture.langchain import ContextureMiddleware  # noqa: E402

OPENAI = "langchain_openai.ChatOpenAI"
#: Without these, the client leaves out the reasoning that belongs to a call.
RESPONSES = {"output_version": "responses/v1", "store": False, "include": ["reasoning.encrypted_content"]}
CLAUDE = {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
#: The model, whether the agent runs in a loop of asyncio, and where summaries go.
CASES: list[tuple[Any, ...]] = [
    (OPENAI, {"model": MODEL}, "/v1", False, "folded"),
    (OPENAI, {"model": MODEL}, "/v1", True, "own"),
    (OPENAI, {"model": MODEL, **RESPONSES}, "/v1", False, "own"),
    ("langchain_anthropic.ChatAnthropic", {"model": "claude-opus-4-5", **CLAUDE}, "", False, "own"),
    ("langchain_anthropic.ChatAnthropic", {"model": "claude-opus-4-5", **CLAUDE}, "", True, "folded"),
]


@pytest.mark.parametrize(("name", "options", "path", "is_async", "summaries"), CASES)
def test_a_long_run_stays_inside_the_window(
    host: contexture.Host,
    provider: Provider,  # noqa: F811
    name: str,
    options: dict[str, Any],
    path: str,
    is_async: bool,
    summaries: Any,
) -> None:
    package, _, kind = name.partition(".")
    module = pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    model = getattr(module, kind)(base_url=f"{provider.url}{path}", api_key="none", max_retries=0, **options)
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
