"""An agent's loop over LiteLLM, with the callback."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

import contexture
from provider import MODEL, SYSTEM, TASK, WINDOW, Provider, check, shell

# It would ask for its list of prices at each start.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
litellm = pytest.importorskip("litellm", reason="LiteLLM is not installed: pip install litellm")

from contexture.litellm import ContextureCallback

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def test_sixty_rounds_stay_inside_the_window(
    host: contexture.Host, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    callback = ContextureCallback(host, MODEL, WINDOW, engine="lcm")
    monkeypatch.setattr(litellm, "callbacks", [callback])
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]

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
            )
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
