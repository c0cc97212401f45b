"""An agent's loop over LiteLLM, with the callback."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

import contexture
from provider import MODEL, ROUNDS, SYSTEM, TASK, WINDOW, Provider, check, shell

# It would ask for its list of prices at each start.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
litellm = pytest.importorskip("litellm", reason="LiteLLM is not installed: pip install litellm")

from litellm.integrations.custom_logger import CustomLogger

from contexture._adapter import Sessions
from contexture.litellm import ContextureCallback

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_sixty_rounds_stay_inside_the_window(
    host: contexture.Host, provider: Provider, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    calls: list[str] = []
    callback = ContextureCallback(host, MODEL, WINDOW, engine="lcm")
    monkeypatch.setattr(litellm, "callbacks", [callback])
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]

    shown: list[tuple[int, int]] = []

    def answer(self: Sessions, id: str | None, message: Any, usage: Any) -> None:
        shown.append((len(provider.turns), usage.prompt_tokens))
        show(self, id, message, usage)

    show = Sessions.answer
    monkeypatch.setattr(Sessions, "answer", answer)
    options = {"stream": True, "stream_options": {"include_usage": True}} if streams else {}

    async def go() -> str:
        while True:
            answer = await litellm.acompletion(
                model=f"openai/{MODEL}",
                api_base=f"{provider.url}/v1",
                api_key="none",
                messages=messages,
                tools=[BASH, *callback.tools],
                litellm_session_id="harbour",
                num_retries=0,
                **options,
            )
            if streams:
                answer = litellm.stream_chunk_builder([chunk async for chunk in answer])
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return str(message.content)
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                if call.function.name == "bash":
                    text = shell(calls, **arguments)
                else:
                    text = await callback.call_tool("harbour", call.function.name, arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

    check(provider, callback.sessions, asyncio.run(go()), calls)
    # Each answer was shown before the next request, with the provider's usage. The loop may end before LiteLLM reports the last.
    tokens = [request["tokens"] for request in provider.report()["requests"]]
    assert shown[:ROUNDS] == list(enumerate(tokens[:ROUNDS], 1)), (shown, tokens)


class Slow(CustomLogger):
    """A callback of somebody else, which LiteLLM waits for before it reports to ours."""

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("kind", ["whole", "redacted", "abandoned"])
def test_the_next_request_waits_for_a_stream_only_if_that_was_read_to_its_end(
    host: contexture.Host, provider: Provider, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    callback = ContextureCallback(host, MODEL, WINDOW, engine="lcm")
    monkeypatch.setattr(litellm, "callbacks", [Slow(), callback])
    monkeypatch.setattr(litellm, "turn_off_message_logging", kind == "redacted")
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
    request = {
        "model": f"openai/{MODEL}",
        "api_base": f"{provider.url}/v1",
        "api_key": "none",
        "litellm_session_id": "harbour",
        "num_retries": 0,
    }

    async def go() -> None:
        stream, chunks = await litellm.acompletion(messages=messages, stream=True, **request), []
        async for chunk in stream:
            chunks.append(chunk)
            if kind == "abandoned":
                break
        messages.append(litellm.stream_chunk_builder(chunks).choices[0].message.model_dump(exclude_none=True))
        messages.append({"role": "user", "content": "Go on."})
        await litellm.acompletion(messages=messages, **request)

    asyncio.run(go())
    # What LiteLLM does not report comes with the next request.
    assert [turn["new"] for turn in provider.turns] == ([1, 1] if kind == "whole" else [1, 2])
    assert not any(turn["branched"] or turn["revised"] or turn["warnings"] for turn in provider.turns)
