"""An agent of LangChain's with the middleware."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, provider, shell  # noqa: F401

pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain langchain-openai")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

from langchain.agents import create_agent  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

from contexture.langchain import ContextureMiddleware  # noqa: E402


@pytest.mark.parametrize("is_async", [False, True])
def test_a_long_run_stays_inside_the_window(
    host: contexture.Host, provider: Provider, is_async: bool  # noqa: F811
) -> None:
    calls: list[str] = []

    def bash(command: str) -> str:
        """Runs a command."""
        return shell(calls, command)

    agent = create_agent(
        ChatOpenAI(model=MODEL, base_url=f"{provider.url}/v1", api_key="none", max_retries=0),  # type: ignore[arg-type]
        [bash],
        system_prompt=SYSTEM,
        middleware=[ContextureMiddleware(host, MODEL, WINDOW, engine="lcm")],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "harbour"}, "recursion_limit": 500}
    asked = {"messages": [{"role": "user", "content": TASK}]}
    state = asyncio.run(agent.ainvoke(asked, config)) if is_async else agent.invoke(asked, config)
    check(provider, host, "harbour", state["messages"][-1].content, calls)
    # The state has all of it.
    assert sum(message.type == "tool" for message in state["messages"]) == len(calls) + 3
