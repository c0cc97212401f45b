"""Ctrl-C ends a wait in the interpreter's main thread and in an asyncio task."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import contexture
from contexture import AsyncHost, Host, Summary

from conftest import chat

CONFIG = "compression: {wait_for_model: true}"


class Sleeps:
    """A model that takes its time, once."""

    name = "sleeps"
    context_length = 32_000

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def complete(self, system: str, prompt: str, max_tokens: int) -> str:
        self.asked.set()
        self.may_answer.wait(60)
        return "What the model makes of it."


@pytest.fixture(autouse=True)
def heard() -> None:
    """Whatever a shell starts in the background ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG)
    return home


@contextmanager
def interrupted(begun: threading.Event | None = None) -> Iterator[None]:
    """Sends Ctrl-C once the event is set. The wait has to end within a second of it."""
    pressed: list[float] = []

    def press() -> None:
        if begun is not None:
            assert begun.wait(30)
        time.sleep(0.2)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    ended = time.monotonic()
    thread.join()
    assert ended - pressed[0] < 1


@contextmanager
def held(home: Path, id: str) -> Iterator[None]:
    """Another process has the session."""
    script = (
        "import contexture, sys\n"
        "session = contexture.Host(sys.argv[1], offline=True).session(sys.argv[2], 'gpt-4o', 16_000)\n"
        "print('open', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(home), id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin and holder.stdout and holder.stdout.readline() == "open\n"
        yield
        holder.stdin.close()


@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_a_long_turn(home: Path, engine: str) -> None:
    model = Sleeps()
    with Host(home, model=model).session("s", "gpt-4o", 16_000, engine=engine) as session:
        with interrupted(model.asked):
            session.turn(chat(40), compact="force")
        # The model has not answered yet, and nobody waits for it.
        began = time.monotonic()
        turn = session.turn([*chat(40), {"role": "user", "content": "Go on."}], compact="never")
        assert time.monotonic() - began < 5
        assert turn.messages[-1]["content"] == "Go on."
        model.may_answer.set()
        assert session.turn(chat(60), compact="force").changed
        assert session.status()["session"] == "s"


def test_a_wait_for_a_session(home: Path) -> None:
    host = Host(home, offline=True)
    with held(home, "s"):
        with interrupted():
            host.session("s", "gpt-4o", 16_000, wait_s=60)
        # The next opener waits as long as its own `wait_s` says.
        began = time.monotonic()
        with pytest.raises(contexture.SessionInUse, match="1 seconds"):
            host.session("s", "gpt-4o", 16_000, wait_s=1)
        assert 1 <= time.monotonic() - began < 3
    with host.session("s", "gpt-4o", 16_000, wait_s=10) as session:
        assert not session.turn(chat(2)).changed


def test_a_wait_for_another_thread_leaves_its_turn_alone(home: Path) -> None:
    model = Sleeps()
    with Host(home, model=model).session("s", "gpt-4o", 16_000, engine="lcm") as session:
        turns: list[contexture.Turn] = []
        thread = threading.Thread(target=lambda: turns.append(session.turn(chat(40), compact="force")))
        thread.start()
        assert model.asked.wait(30)
        with interrupted():
            session.status()
        model.may_answer.set()
        thread.join()
        assert any(isinstance(place, Summary) and "the model makes" in place.text for place in turns[0].places)


def test_a_task_that_is_cancelled(home: Path) -> None:
    model = Sleeps()

    async def play() -> None:
        async with AsyncHost(home, model=model).session("s", "gpt-4o", 16_000, engine="lcm") as session:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.turn(chat(40), compact="force"), 0.5)
            assert (await session.turn(chat(41), compact="never")).messages

    began = time.monotonic()
    asyncio.run(play())
    # The exit does not wait for the thread, either.
    assert time.monotonic() - began < 10
    model.may_answer.set()


def test_a_program_of_asyncio(home: Path) -> None:
    script = (
        "import asyncio, contexture, sys\n"
        "async def main():\n"
        "    async with contexture.AsyncHost(sys.argv[1], offline=True) as host:\n"
        "        print('waits', flush=True)\n"
        "        await host.session('s', 'gpt-4o', 16_000, wait_s=60)\n"
        "asyncio.run(main())\n"
    )
    with held(home, "s"):
        command = [sys.executable, "-c", script, str(home)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waits:
            assert waits.stdout and waits.stdout.readline() == "waits\n"
            time.sleep(0.5)
            pressed = time.monotonic()
            waits.send_signal(signal.SIGINT)
            _, said = waits.communicate(timeout=30)
            assert time.monotonic() - pressed < 2
            assert "KeyboardInterrupt" in said
