"""What the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import contexture
from contexture._adapter import Sessions

from provider import Provider


@pytest.fixture
def host(tmp_path: Path) -> Iterator[contexture.Host]:
    with contexture.Host(tmp_path / "home", offline=True) as host:
        yield host


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """A provider simulator, and the reports of an adapter's turns."""
    folder = tmp_path / "record"
    folder.mkdir()
    provider = Provider(folder)
    turn = Sessions.turn

    def recorded(self: Sessions, id: str | None, body: dict[str, Any]) -> contexture.Turn:
        result = turn(self, id, body)
        provider.turns.append(result.report)
        return result

    monkeypatch.setattr(Sessions, "turn", recorded)
    yield provider
    provider.close()


def chat(turns: int, words: int = 60) -> list[dict[str, Any]]:
    """A conversation of so many turns, each of a user's message and an answer."""
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"question {turn}: " + f"why is part {turn} so? " * words})
        messages.append({"role": "assistant", "content": f"answer {turn}: " + f"part {turn} is as it is. " * words})
    return messages
