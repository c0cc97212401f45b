"""An agent of Microsoft's Agent Framework with the middleware."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, shell

pytest.importorskip("agent_framework", reason="Agent Framework is not installed: pip install agent-framework-core")
pytest.importorskip("agent_framework_openai", reason="its OpenAI client is not installed: pip install agent-framework-openai")

from agent_framework import Agent, tool
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient

from contexture.agent_framework import ContextureMiddleware


CASES = [
    pytest.param(OpenAIChatCompletionClient, False, "folded", id="chat"),
    pytest.param(OpenAIChatCompletionClient, True, "own", id="extra_chat_stream"),
    pytest.param(OpenAIChatClient, False, "folded", id="extra_responses"),
    pytest.param(OpenAIChatClient, True, "own", id="extra_responses_stream"),
]


@pytest.mark.parametrize(("client", "streams", "summaries"), CASES)
def test_sixty_rounds_stay_inside_the_window(
    host: contexture.Host, provider: Provider, client: Any, streams: bool, summaries: Any
) -> None:
    calls: list[str] = []

    @tool(approval_mode="never_require")
    def bash(command: str) -> str:
        """Runs a command."""
        return shell(calls, command)

    middleware = ContextureMiddleware(host, MODEL, WINDOW, engine="lcm", summaries=summaries)
    chat = client(model=MODEL, base_url=f"{provider.url}/v1", api_key="none")
    chat.function_invocation_configuration["max_iterations"] = 100
    # The history stays here: one that the provider keeps never comes by the middleware.
    options = {"store": False}
    agent = Agent(chat, SYSTEM, tools=[bash, *middleware.tools], middleware=[middleware], default_options=options)

    async def go() -> str:
        session = agent.create_session(session_id="harbour")
        if streams:
            stream = agent.run(TASK, session=session, stream=True)
            async for _ in stream:
                pass
            response = await stream.get_final_response()
        else:
            response = await agent.run(TASK, session=session)
        # The session has all of it.
        stored = [content for message in session.state["in_memory"]["messages"] for content in message.contents]
        assert sum(content.type == "function_result" for content in stored) == len(calls) + 3
        return response.messages[-1].text

    check(provider, middleware.sessions, asyncio.run(go()), calls)
