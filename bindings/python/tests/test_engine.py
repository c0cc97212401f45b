"""A Python class as an engine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import contexture
from contexture import Summary

from conftest import chat


class LastTen:
    """Keeps the last ten messages."""

    def __init__(self, request: dict[str, Any], services: contexture.Services) -> None:
        self.session, self.services = request["session"], services
        self.told: list[str] = []

    def should_compress(self, window: dict[str, Any]) -> tuple[bool, str]:
        return window["prompt_tokens"] * 2 >= window["context_length"], "half of the window is full"

    def compress(self, messages: list[dict[str, Any]], order: dict[str, Any]) -> dict[str, Any]:
        ids = [message["id"] for message in messages]
        said = [at for at, message in enumerate(messages) if message["role"] == "user"]
        cut = contexture.safe_cut(messages, min([len(ids) - 10, *said[-1:]]))
        if sum(message["tokens"] for message in messages[:cut]) < 60:
            return {"nothing_to_do": "there is little before the last ten messages"}
        text = f"{cut} earlier messages of {self.session} were left out."
        assert self.services.count_tokens(text) > 5
        entries: list[dict[str, Any]] = [{"summary": {"text": text, "covers": ids[:cut]}}]
        entries += [{"keep": id} for id in ids[cut:]]
        return {"compacted": {"entries": entries}}

    def tools(self) -> list[dict[str, Any]]:
        return [{"name": "told", "description": "", "parameters": {"type": "object"}}]

    def call_tool(self, call: dict[str, Any]) -> str:
        if call["name"] != "told" or not isinstance(json.loads(call["arguments"]), dict):
            raise ValueError("no such tool, or arguments that are no object")
        return ",".join(self.told)

    def committed(self, committed: dict[str, Any]) -> None:
        self.told.append("committed")


class Raises(LastTen):
    def compress(self, messages: list[dict[str, Any]], order: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("out of ideas")


class Forgets(LastTen):
    """Leaves out what it does not keep, without a word."""

    def compress(self, messages: list[dict[str, Any]], order: dict[str, Any]) -> dict[str, Any]:
        return {"compacted": {"entries": [{"keep": message["id"]} for message in messages[-1:]]}}


def test_a_class_is_an_engine(tmp_path: Path) -> None:
    contexture.register_engine("last-ten-of-python", LastTen)
    host = contexture.Host(tmp_path / "home", offline=True)
    with host.session("s", "gpt-4o", 16_000, engine="last-ten-of-python") as session:
        turn = session.turn(chat(40))
        assert turn.report["compaction"]["engine"] == "last-ten-of-python"
        assert isinstance(turn.places[0], Summary) and "of s were left out" in turn.places[0].text
        assert session.call_tool("told", {}) == "committed"


def test_an_engine_that_raises_costs_no_turn(tmp_path: Path) -> None:
    contexture.register_engine("raises", Raises)
    host = contexture.Host(tmp_path / "home", offline=True)
    with host.session("s", "gpt-4o", 16_000, engine="raises") as session:
        turn = session.turn(chat(40))
        assert any("out of ideas" in text for text in turn.report["warnings"] + [str(turn.report["compaction"])])
        assert turn.report["compaction"]["engine"] == "compressor"


def test_an_engine_that_calls_its_own_session_fails_at_once(tmp_path: Path) -> None:
    class Calls(LastTen):
        def compress(self, messages: list[dict[str, Any]], order: dict[str, Any]) -> dict[str, Any]:
            session.status()
            return super().compress(messages, order)

    contexture.register_engine("calls", Calls)
    host = contexture.Host(tmp_path / "home", offline=True)
    with host.session("s", "gpt-4o", 16_000, engine="calls") as session:
        began = time.monotonic()
        turn = session.turn(chat(40))
        assert time.monotonic() - began < 4
        assert "calls its own session" in str(turn.report)


def test_a_class_that_is_registered_again_replaces_the_first(tmp_path: Path) -> None:
    contexture.register_engine("edited", Raises)
    contexture.register_engine("edited", LastTen)
    host = contexture.Host(tmp_path / "home", offline=True)
    with host.session("s", "gpt-4o", 16_000, engine="edited") as session:
        assert session.turn(chat(40)).report["compaction"]["engine"] == "edited"


def test_a_class_is_held_to_what_every_engine_is() -> None:
    holds, table = contexture.check_engine("last-ten", LastTen, conversations=2)
    assert holds, table
    holds, table = contexture.check_engine("forgets", Forgets, conversations=0)
    assert not holds and "contract" in table
