"""Sessions, as an agent in Python has them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import contexture
from contexture import AsyncHost, Changed, Host, Kept, Summary

from conftest import chat


def test_what_is_not_changed_comes_back_as_the_very_objects(host: Host) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *chat(3)]
    with host.session("s", "gpt-4o", 128_000) as session:
        turn = session.turn(messages)
        assert not turn.changed
        assert [id(message) for message in turn.messages] == [id(message) for message in messages]
        assert turn.body is messages
        assert [place.index for place in turn.places if isinstance(place, Kept)] == list(range(7))
        assert turn.report["new"] == 6


def test_a_compaction_says_what_became_of_each_message(host: Host) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *chat(40)]
    with host.session("s", "gpt-4o", 16_000, engine="lcm") as session:
        turn = session.turn(messages, compact="force")
        assert turn.changed
        assert turn.report["compaction"]["outcome"] == "compacted"
        kept = [place for place in turn.places if isinstance(place, Kept)]
        summaries = [place for place in turn.places if isinstance(place, Summary)]
        assert summaries and len(turn.places) < len(messages)
        for place in kept:
            assert any(message is messages[place.index] for message in turn.messages)
        assert summaries[0].text in str(summaries[0].message["content"])
        system = turn.places[0]
        assert isinstance(system, Changed) and system.index == 0
        assert system.content.startswith("Be brief.")
        # What is handed out is known when it comes back.
        again = session.turn([*turn.messages, {"role": "user", "content": "And now?"}])
        assert again.report["new"] == 1 and not again.report["branched"]
        # And so is the whole history: the summary in force is in the result.
        whole = session.turn([*messages, {"role": "user", "content": "And now?"}])
        assert whole.report["new"] == 0
        assert any(isinstance(place, Summary) for place in whole.places)


def test_the_system_prompt_is_left_alone_where_no_note_is_wanted(host: Host) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *chat(40)]
    with host.session("s", "gpt-4o", 16_000, engine="lcm", note=False) as session:
        turn = session.turn(messages, compact="force")
        assert turn.messages[0] is messages[0]


def test_a_dictionary_that_was_changed_in_place_is_seen(host: Host) -> None:
    messages = chat(3)
    with host.session("s", "gpt-4o", 128_000) as session:
        session.turn(messages)
        messages[2]["content"] = "something else altogether"
        turn = session.turn(messages)
        assert turn.report["revised"] == 1


def test_only_the_head_is_compacted_where_the_tail_is_kept(host: Host) -> None:
    messages = chat(40)
    with host.session("s", "gpt-4o", 16_000, engine="lcm") as session:
        turn = session.turn(messages, compact="force", keep_from=60)
        kept = {place.index for place in turn.places if isinstance(place, Kept)}
        assert set(range(60, 80)) <= kept and len(turn.places) < len(messages)


def test_a_body_comes_back_in_the_form_that_was_given(host: Host) -> None:
    marker = object()
    messages = [{"role": "system", "content": "Be brief."}, *chat(40)]
    body: dict[str, Any] = {"model": "gpt-4o", "messages": messages, "extra": marker}
    with host.session("s", "gpt-4o", 16_000, engine="lcm") as session:
        assert session.turn(body, compact="never").body is body
        turn = session.turn(body, compact="force")
        assert turn.body["extra"] is marker and turn.body["model"] == "gpt-4o"
        assert turn.body["messages"] == turn.messages
        assert body["messages"] is messages and len(messages) == 81
        text = json.dumps({"messages": messages})
        assert json.loads(session.turn(text).body)["messages"] == session.turn(text).messages


def test_anthropic_messages(host: Host) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    with host.session("s", "claude-opus-4-5", 200_000, format="anthropic") as session:
        turn = session.turn({"system": "Be brief.", "messages": messages})
        assert turn.messages[0] is messages[0]
        usage = {"input_tokens": 9, "cache_read_input_tokens": 3, "output_tokens": 1}
        session.answer({"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}, usage)


def test_cached_tokens_are_counted_once(host: Host) -> None:
    """LiteLLM passes Anthropic's figures on beside `prompt_tokens`, which has them already."""
    with host.session("s", "claude-opus-4-5", 200_000) as session:
        session.turn([{"role": "user", "content": "Hello"}])
        usage = {"prompt_tokens": 5_300, "completion_tokens": 2, "cache_read_input_tokens": 5_000}
        session.answer({"role": "assistant", "content": "Hi"}, usage)
        assert 5_300 <= session.status()["window"]["reported_tokens"] < 5_320


def test_values_of_every_kind_are_walked(host: Host) -> None:
    odd = {"role": "user", "content": 'a "b" \\ \n\t\x01 ü 🦀', "n": [1, -2.5, True, None, 10**30], "_own": object()}
    with host.session("s", "gpt-4o", 128_000) as session:
        assert session.turn((odd,)).messages[0] is odd
        for wrong in ({"role": "user", "content": object()}, {"role": "user", "content": float("nan")}):
            with pytest.raises(contexture.FormatError, match="message 0.*content"):
                session.turn([wrong])
        with pytest.raises(contexture.FormatError):
            session.turn([{"role": "user", "content": "\ud800"}])
        nested: list[Any] = []
        nested.append(nested)
        with pytest.raises(contexture.FormatError, match="too deep"):
            session.turn([{"role": "user", "content": nested}])


def test_a_host_and_its_sessions_are_shared_in_a_process(tmp_path: Path) -> None:
    one, other = Host(tmp_path / "home", offline=True), Host(tmp_path / "home", offline=True)
    with pytest.raises(contexture.ContextureError, match="one host"):
        Host(tmp_path / "home", offline=False)
    first = one.session("s", "gpt-4o", 128_000)
    second = other.session("s", "gpt-4o", 128_000)
    first.turn(chat(2))
    first.close()
    assert second.turn(chat(2)).report["new"] == 0
    with pytest.raises(contexture.ContextureError, match="closed"):
        first.turn(chat(2))
    second.close()


def test_a_session_of_another_process_is_in_use(tmp_path: Path) -> None:
    script = (
        "import contexture, sys\n"
        "session = contexture.Host(sys.argv[1], offline=True).session('s', 'gpt-4o', 128_000)\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "home")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin and holder.stdout
        assert holder.stdout.readline() == "open\n"
        host = Host(tmp_path / "home", offline=True)
        with pytest.raises(contexture.SessionInUse, match=str(holder.pid)):
            host.session("s", "gpt-4o", 128_000, wait_s=0.1)
        holder.stdin.close()
        holder.wait()
        host.session("s", "gpt-4o", 128_000).close()


def test_threads_share_a_session(host: Host) -> None:
    messages = chat(20)
    with host.session("s", "gpt-4o", 128_000) as session:
        session.turn(messages)
        seen: list[int] = []

        def play() -> None:
            for _ in range(20):
                seen.append(len(session.turn(messages).messages))

        threads = [threading.Thread(target=play) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [40] * 80


def test_tools_of_an_engine(host: Host) -> None:
    names = [tool["function"]["name"] for tool in host.tools("lcm")]
    assert "lcm_grep" in names
    with host.session("s", "gpt-4o", 128_000, engine="lcm") as session:
        session.turn(chat(3))
        assert "question 1" in session.call_tool("lcm_grep", {"pattern": "question 1"})
        with pytest.raises(contexture.ToolError):
            session.call_tool("lcm_grep", {"pattern": "("})
        with pytest.raises(contexture.ToolError):
            session.call_tool("nothing", {})
        assert session.status()["engine"] == session.engine == "lcm"


def test_what_else_there_is(host: Host) -> None:
    assert {"compressor", "lcm", "two-layer", "tiered", "virtual-files"} <= {one["name"] for one in host.engines()}
    assert contexture.count_tokens("hello world", "gpt-4o") == 2
    with pytest.raises(ValueError, match="compact"):
        host.session("s", "gpt-4o", 1000).turn([], compact="maybe")  # type: ignore[arg-type]
    with pytest.raises(contexture.ContextureError):
        host.session("s", "gpt-4o", 1000, engine="nonesuch")
    with host.session("t", "gpt-4o", 128_000) as session:
        assert not session.preflight(100)
        assert session.preflight(120_000).reason
        session.turn(chat(2))
        session.usage(prompt_tokens=100, completion_tokens=2)
        session.set_model("gpt-4o-mini", 64_000)
        assert session.status()["window"]["context_length"] == 64_000


def test_another_conversation_is_refused_where_that_is_wanted(host: Host) -> None:
    with host.session("s", "gpt-4o", 128_000, unrelated="refuse") as session:
        session.turn(chat(2))
        with pytest.raises(contexture.ContextureError, match="shares no message"):
            session.turn([{"role": "user", "content": "another"}, {"role": "assistant", "content": "one"}])


def test_a_replay(tmp_path: Path) -> None:
    report = contexture.replay(chat(40), "gpt-4o", 16_000, engine="lcm", home=tmp_path / "home", offline=True)
    rows = {row["engine"]: row for row in report["conversations"][0]["rows"]}
    assert rows["lcm"]["prompt_tokens"] < rows["none"]["prompt_tokens"]


def test_a_second_opener_has_to_want_the_same(host: Host) -> None:
    first = host.session("s", "gpt-4o", 128_000, 1_000, engine="lcm")
    same: dict[str, Any] = {"model": "gpt-4o", "context_length": 128_000, "max_output_tokens": 1_000}
    others: list[tuple[dict[str, Any], str]] = [
        ({"model": "gpt-4o-mini"}, "gpt-4o-mini"),
        ({"context_length": 64_000}, "64000"),
        ({"max_output_tokens": 0}, "1000 for the answer"),
        ({"engine": "compressor"}, "compressor"),
        ({"note": False}, "note"),
        ({"summaries": "folded"}, "summaries"),
        ({"unrelated": "refuse"}, "unrelated"),
    ]
    for other, about in others:
        with pytest.raises(contexture.SessionDiffers, match=about) as raised:
            host.session("s", **{**same, **other})
        error = raised.value
        assert (error.model, error.context_length, error.max_output_tokens) == ("gpt-4o", 128_000, 1_000)
    # That changed nothing, and left no unknown holder behind.
    assert first.status()["window"]["context_length"] == 128_000
    for more in ({}, {"engine": "lcm"}, {"format": "anthropic"}):
        host.session("s", **{**same, **more}).close()
    first.close()
    with host.session("s", "gpt-4o-mini", 64_000) as anew:
        assert anew.status()["window"]["context_length"] == 64_000


def test_holders_are_told_of_another_window(host: Host) -> None:
    with host.session("s", "gpt-4o", 128_000) as one, host.session("s", "gpt-4o", 128_000) as other:
        one.set_model("gpt-4o-mini", 64_000)
        assert one.turn(chat(2)).report["warnings"] == []
        [told] = other.turn(chat(2)).report["warnings"]
        assert "another holder" in told and "gpt-4o-mini" in told and "64000" in told and "128000" in told
        assert other.turn(chat(2)).report["warnings"] == []
        other.set_model("gpt-4o", 128_000)
        assert len(one.turn(chat(2)).report["warnings"]) == 1


def test_pins_and_the_tools_of_the_host(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("compression: {model_tools: true}\n")
    messages = [{"role": "system", "content": "Be brief."}, *chat(40)]
    with Host(home, offline=True) as host, host.session("s", "gpt-4o", 16_000, engine="lcm") as session:
        session.turn(messages, compact="never")
        names = [tool["function"]["name"] for tool in session.tools()]
        assert names[:3] == ["context_pin", "context_unpin", "context_reduce"]
        assert "Pinned" in session.call_tool("context_pin", {"text": "The port is 8123."})
        with pytest.raises(contexture.ToolError, match="no pin with these words"):
            session.call_tool("context_unpin", {"text": "x"})
        for words in ("Use TLS.", "Over."):
            session.pin(words)
        session.unpin("Over.")
        with pytest.raises(contexture.ToolError, match="cannot be pinned"):
            session.pin("/pin x")
        window = json.dumps(session.turn(messages, compact="force").messages)
        assert "- The port is 8123." in window and "- Use TLS." in window and "Over." not in window


def test_async_twins(tmp_path: Path) -> None:
    async def play() -> None:
        opened = await AsyncHost.open(tmp_path / "home", offline=True)
        assert await opened.engines() == Host(tmp_path / "home", offline=True).engines()
        async with AsyncHost(tmp_path / "home", offline=True) as host:
            session = await host.session("s", "gpt-4o", 128_000, engine="lcm")
            messages = chat(2)
            turn = await session.turn(messages, compact="auto")
            assert turn.messages == messages and session.id == "s" and await session.engine() == "lcm"
            await session.answer({"role": "assistant", "content": "Well."}, {"prompt_tokens": 9})
            await session.usage(prompt_tokens=9)
            assert not await session.preflight(9)
            await session.set_model("gpt-4o", 64_000)
            names = [tool["function"]["name"] for tool in await session.tools()]
            assert names == [tool["function"]["name"] for tool in await host.tools("lcm")] and names
            assert "question 1" in await session.call_tool("lcm_grep", {"pattern": "question 1"})
            assert (await session.status())["window"]["context_length"] == 64_000
            await session.reset()
            await session.close()
            with pytest.raises(contexture.ContextureError, match="closed"):
                await session.turn(messages)
            async with host.session("s", "gpt-4o", 128_000) as again:
                await again.turn(messages)
            with pytest.raises(contexture.ContextureError, match="closed"):
                await again.turn(messages)
            # As before, an awaited session is closed, too.
            async with await host.session("s", "gpt-4o", 128_000) as again:
                assert (await again.turn(messages)).report["new"] == 0
            with pytest.raises(contexture.ArgumentError, match="context_length"):
                await host.session("s", "gpt-4o", -1)
        with pytest.raises(contexture.ArgumentError, match="home"):
            AsyncHost(5)  # type: ignore[arg-type]

    asyncio.run(play())


def test_async_sessions_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async def play() -> None:
        async with AsyncHost(tmp_path / "home", offline=True) as host:

            async def one(at: int) -> int:
                async with host.session(f"{at}", "gpt-4o", 16_000, engine="lcm") as session:
                    return len((await session.turn(chat(40), compact="force")).messages)

            lengths = await asyncio.gather(*(one(at) for at in range(6)))
            assert len(set(lengths)) == 1 and lengths[0] < 80

    asyncio.run(play())


def test_the_command_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "contexture", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={"CONTEXTURE_HOME": str(tmp_path)})

    assert run("--version").stdout.strip().endswith(contexture.__version__)
    assert "lcm" in run("engines", "list").stdout
    assert run("nonesuch").returncode == 2


class Helper:
    """A model that the program asks itself."""

    name = "helper"
    context_length = 32_000

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails = False

    def complete(self, system: str, prompt: str, max_tokens: int) -> str:
        assert system and max_tokens > 0
        self.asked.append(prompt)
        if self.fails:
            raise TimeoutError("the helper sleeps")
        return "What the helper makes of it."


def test_the_programs_own_model_writes_summaries(tmp_path: Path) -> None:
    helper = Helper()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text("compression: {wait_for_model: true}")
    host = Host(tmp_path / "home", model=helper)
    with pytest.raises(contexture.ContextureError, match="model"):
        Host(tmp_path / "home")
    with host.session("s", "gpt-4o", 16_000, engine="lcm") as session:
        messages = [*chat(40), {"role": "user", "content": "the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"}]
        turn = session.turn([*messages, *chat(10)], compact="force")
        assert any(isinstance(place, Summary) and "What the helper makes" in place.text for place in turn.places)
        assert helper.asked and not any("sk-proj-abcdef" in prompt for prompt in helper.asked)
        assert turn.report["compaction"]["model_calls"] == len(helper.asked)
    helper.fails = True
    with host.session("t", "gpt-4o", 16_000, engine="lcm") as session:
        turn = session.turn(chat(40), compact="force")
        assert turn.report["compaction"]["outcome"] == "compacted" and turn.report["compaction"]["degraded"]
        assert "the helper sleeps" in str(turn.report)
