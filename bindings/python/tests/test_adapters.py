"""What the adapters for agent frameworks share, and what each does with a message that a session changed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import contexture
from contexture._adapter import Chat, Piece, Sessions, assistant, rewritten, window

from conftest import chat
from provider import MODEL, SYSTEM, TASK, WINDOW, shell

FRAMEWORKS = {
    "agent_framework": ("agent_framework", "agent-framework-core"),
    "langchain": ("langchain", "langchain"),
    "litellm": ("litellm", "litellm"),
    "openai_agents": ("agents", "openai-agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai-slim"),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_without_its_framework_an_adapter_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, package = FRAMEWORKS[name]
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"contexture.{name}", raising=False)
    with pytest.raises(ImportError, match=rf"contexture\.{name} needs .*: pip install '{package}>="):
        importlib.import_module(f"contexture.{name}")


def test_the_extras_name_what_the_adapters_need() -> None:
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    folder = Path(__file__).resolve().parents[1]
    extras = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) == {name.replace("_", "-") for name in FRAMEWORKS}
    tested = dict(line.split("==") for line in (folder / "tests" / "frameworks.txt").read_text().splitlines() if "==" in line)
    for name, (_, package) in FRAMEWORKS.items():
        [needed] = extras[name.replace("_", "-")]
        assert needed in (folder / "contexture" / f"{name}.py").read_text()
        assert tested[package].startswith(needed.removeprefix(f"{package}>=")), needed


def test_conversations_have_sessions_of_their_own(host: contexture.Host) -> None:
    sessions = Sessions(host, "gpt-4o", 16_000, engine="lcm")
    for name in ("harbour", "lighthouse"):
        messages = [*chat(3), {"role": "user", "content": f"The secret of the {name} is 4711."}]
        sessions.turn(name, {"messages": messages})
    found = sessions.call_tool("harbour", "lcm_grep", {"pattern": "secret of the"})
    assert "secret of the harbour" in found and "secret of the lighthouse" not in found
    with pytest.raises(contexture.ArgumentError, match="the conversation has no id"):
        sessions.turn(None, {"messages": chat(1)})


def test_a_conversation_goes_on_after_its_session_was_closed(host: contexture.Host) -> None:
    sessions = Sessions(host, "gpt-4o", 16_000, engine="lcm")
    messages = [*chat(60), {"role": "user", "content": "And now?"}]
    first = sessions.turn("harbour", {"messages": messages})
    assert first.report["compaction"]["outcome"] == "compacted"
    sessions.close()
    # The framework passes its whole history again.
    again = sessions.turn("harbour", {"messages": [*messages, *chat(1)[::-1], {"role": "user", "content": "And then?"}]})
    assert again.report["new"] == 3 and not again.report["branched"] and len(again.messages) == len(first.messages) + 3


def test_wrong_arguments_are_told_to_the_model(host: contexture.Host) -> None:
    sessions = Sessions(host, "gpt-4o", 16_000, engine="lcm")
    sessions.turn("harbour", {"messages": chat(3)})
    assert "pattern" in sessions.call_tool("harbour", "lcm_grep", {"patern": "secret"})


def test_an_answer_that_cannot_be_read_is_a_warning(host: contexture.Host, caplog: pytest.LogCaptureFixture) -> None:
    sessions = Sessions(host, "gpt-4o", 16_000)
    messages = chat(1)
    sessions.turn("harbour", {"messages": messages[:1]})
    sessions.answer("harbour", {"role": "assistant", "content": object()}, None)
    assert "contexture did not read an answer" in caplog.text
    # It comes again with the next request.
    assert sessions.turn("harbour", {"messages": [*messages, {"role": "user", "content": "And?"}]}).report["new"] == 2


def test_only_the_last_sessions_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sessions, "KEPT", 2)
    host = contexture.Host(tmp_path / "home", offline=True)
    sessions = Sessions(host, "gpt-4o", 16_000)

    def in_use() -> list[str]:
        script = (
            "import contexture, sys\n"
            "host = contexture.Host(sys.argv[1], offline=True)\n"
            "for id in 'abc':\n"
            "    try:\n"
            "        host.session(id, 'gpt-4o', 16_000, wait_s=0.0).close()\n"
            "    except contexture.SessionInUse:\n"
            "        print(id)\n"
        )
        command = [sys.executable, "-c", script, str(tmp_path / "home")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    for id in ("a", "b", "c", "b"):
        sessions.turn(id, {"messages": chat(1)})
    assert in_use() == ["b", "c"]
    # A call that is in progress keeps its session.
    with sessions.open("a") as first:
        sessions.close()
        assert in_use() == ["a"]
        assert first.turn(chat(2)).report["new"] == 2
    sessions.close()
    assert in_use() == []


@pytest.mark.parametrize("engine", ["compressor", "virtual-files"])
def test_what_a_session_adds_is_sent_in_its_place(host: contexture.Host, engine: str) -> None:
    sessions = Sessions(host, MODEL, WINDOW, engine=engine, summaries="own")
    calls: list[str] = []
    messages: list[Chat] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    for at in range(30):
        messages.append(assistant("", [(f"call_{at}", "bash", {"command": f"check {at}"})]))
        messages.append({"role": "tool", "tool_call_id": f"call_{at}", "content": shell(calls, "check")})
        turn = sessions.turn("harbour", {"messages": messages})
    pieces = [Piece(message, message) for message in messages]
    sent = window(turn, pieces, lambda piece, chat: Piece(chat, chat), lambda chat: Piece(chat, {**chat, "added": True}))
    added = [message for message, _ in sent if "added" in message]
    texts = [place.message["content"] for place in turn.places if isinstance(place, contexture.Summary)]
    assert added and [message["content"] for message in added] == texts
    # Not every provider takes a system message there.
    assert all(message["role"] != "system" for message, _ in sent[1:])
    assert len(sent) == len(turn.places) and sent[0][0]["content"].startswith(SYSTEM)


def test_a_summary_stands_before_the_calls_of_the_message_that_it_joined() -> None:
    message = object()
    parts = ["thinking", "call a", "call b"]
    before = assistant("", [("a", "bash", {"command": "ls"}), ("b", "bash", {"command": "pwd"})])
    after: Chat = {**before, "content": "[summary]", "tool_calls": json.loads(json.dumps(before["tool_calls"]))}
    after["tool_calls"][1]["function"]["arguments"] = "{}"

    def changed(parts: list[str]) -> list[Any]:
        piece = rewritten(
            Piece(before, message, parts),
            after,
            is_text=lambda part: part.startswith("text"),
            call_id=lambda part: part.removeprefix("call ") if part.startswith("call") else None,
            text=lambda text: f"text {text}",
            call=lambda part, arguments: f"{part} {arguments}",
        )
        assert piece.message is message
        return list(piece.parts)

    assert changed(parts) == ["thinking", "text [summary]", "call a", "call b {}"]
    assert changed(["thinking", "text old", *parts[1:], "text older"]) == changed(parts)


THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
CALL = {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}}
SHORTENED = assistant("[summary] Now:", [("a", "bash", {"command": "…"})])


def test_a_message_of_langchain_keeps_its_signed_thinking() -> None:
    pytest.importorskip("langchain", reason="LangChain is not installed: pip install langchain")
    from langchain_core.messages import AIMessage, HumanMessage

    from contexture.langchain import _changed, _chat

    calls: list[Any] = [{"id": "a", "name": "bash", "args": {"command": "ls"}}]
    message = AIMessage([THINKING, {"type": "text", "text": "Now:"}, CALL], tool_calls=calls)
    result = _changed(Piece(_chat(message), message), SHORTENED).message
    assert result.content == [THINKING, {"type": "text", "text": "[summary] Now:"}, CALL]
    assert isinstance(result, AIMessage) and result.tool_calls[0]["args"] == {"command": "…"}
    assert message.tool_calls[0]["args"] == {"command": "ls"}

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    asked = HumanMessage([{"type": "text", "text": "What is this?"}, picture])
    folded = {**_chat(asked), "content": [{"type": "text", "text": "[summary] What is this?"}, picture]}
    assert _changed(Piece(_chat(asked), asked), folded).message.content == folded["content"]


def test_a_message_of_pydantic_ai_keeps_its_signed_thinking_and_its_pictures() -> None:
    pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed: pip install pydantic-ai-slim")
    from pydantic_ai.messages import ImageUrl, ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart, UserPromptPart

    from contexture.pydantic_ai import _changed, _pieces

    thinking = ThinkingPart("Hm.", signature="signed")
    message = ModelResponse([thinking, TextPart("Now:"), ToolCallPart("bash", {"command": "ls"}, tool_call_id="a")])
    [piece] = _pieces(message)
    first, text, call = _changed(piece, SHORTENED).parts
    assert first is thinking and text.content == "[summary] Now:" and call.args_as_dict() == {"command": "…"}

    picture = ImageUrl("https://example.com/harbour.png")
    [piece] = _pieces(ModelRequest([UserPromptPart(["What is this?", picture])]))
    block = {"type": "image_url", "image_url": {"url": picture.url}}
    folded: Chat = {"role": "user", "content": [{"type": "text", "text": "[summary] What is this?"}, block]}
    assert _changed(piece, folded).parts[0].content == ["[summary] What is this?", picture]


def test_a_message_of_agent_framework_keeps_its_reasoning_and_its_pictures() -> None:
    pytest.importorskip("agent_framework", reason="Agent Framework is not installed: pip install agent-framework-core")
    from agent_framework import Content, Message

    from contexture.agent_framework import _changed, _pieces

    reasoning = Content.from_text_reasoning(text="Hm.", protected_data="signed")
    call = Content.from_function_call("a", "bash", arguments={"command": "ls"})
    [piece] = _pieces(Message("assistant", [reasoning, "Now:", call]))
    first, text, changed = _changed(piece, SHORTENED).parts
    assert first is reasoning and text.text == "[summary] Now:" and json.loads(changed.arguments) == {"command": "…"}

    picture = Content.from_uri("https://example.com/harbour.png", media_type="image/png")
    [piece] = _pieces(Message("user", ["What is this?", picture]))
    block = {"type": "image_url", "image_url": {"url": picture.uri}}
    folded: Chat = {"role": "user", "content": [{"type": "text", "text": "[summary] What is this?"}, block]}
    text, kept = _changed(piece, folded).parts
    assert text.text == "[summary] What is this?" and kept is picture
