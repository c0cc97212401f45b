"""Children made by `os.fork` leave alone what their parent opened, and can use what they open themselves."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import contexture
from contexture import ContextureError, Host, Session

from conftest import chat
from hermes_driver import Model as Server
from test_engine import LastTen

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no `fork` here"),
    # Python warns of forks in a process with threads, which is what this file tests.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def in_child(act: Callable[[], object], seconds: float = 30) -> None:
    """Runs something in a child, which has to succeed in time."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    wait_for(child, seconds)


def wait_for(child: int, seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail(f"the child did not end within {seconds} seconds")


contexture.register_engine("of-python-in-a-child", LastTen)


@pytest.fixture(params=["compressor", "lcm", "of-python-in-a-child"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def session(host: Host, engine: str) -> Iterator[Session]:
    with host.session("of the parent", "gpt-4o", 16_000, engine=engine) as session:
        session.turn(chat(40), compact="force")
        yield session


def test_a_child_drops_what_its_parent_opened(tmp_path: Path, engine: str) -> None:
    held = [Host(tmp_path / "home", offline=True)]
    sessions = [held[0].session("s", "gpt-4o", 16_000, engine=engine)]
    sessions[0].turn(chat(3))

    def drop() -> None:
        sessions.clear()
        held.clear()
        gc.collect()

    in_child(drop)
    # Nothing was released or changed for the parent.
    assert sessions[0].turn(chat(4)).report["new"] == 2
    sessions.clear()
    with held[0].session("s", "gpt-4o", 16_000, engine=engine) as session:
        assert session.turn(chat(4)).report["new"] == 0


def test_closing_does_nothing_and_using_says_what_to_do(host: Host, session: Session) -> None:
    uses: list[Callable[[], object]] = [
        lambda: session.turn(chat(2)),
        lambda: session.answer({"role": "assistant", "content": "Well."}),
        lambda: session.usage(prompt_tokens=5),
        lambda: session.preflight(5),
        lambda: session.set_model("gpt-4o", 16_000),
        lambda: session.tools(),
        lambda: session.call_tool("lcm_grep", {"pattern": "x"}),
        lambda: session.status(),
        lambda: session.reset(),
        lambda: session.engine,
        lambda: host.engines(),
        lambda: host.tools(),
        lambda: host.session("t", "gpt-4o", 16_000),
    ]

    def use() -> None:
        for act in uses:
            with pytest.raises(ContextureError, match=rf"process {os.getppid()}.*fork.*contexture\.Host"):
                act()
        assert session.id == "of the parent" and "of the parent" in repr(session)
        with session:
            pass
        session.close()

    in_child(use)
    assert session.status()["session"] == "of the parent"


def test_a_child_opens_a_host_of_its_own_over_the_same_home(tmp_path: Path, host: Host, session: Session) -> None:
    def open() -> None:
        own = Host(tmp_path / "home", offline=True)
        with pytest.raises(contexture.SessionInUse, match=f"the process {os.getppid()}"):
            own.session("of the parent", "gpt-4o", 16_000, wait_s=0.1)
        with own.session("of the child", "gpt-4o", 16_000, engine=session_engine) as mine:
            assert mine.turn(chat(40), compact="force").changed
        assert "lcm" in {one["name"] for one in own.engines()}

    session_engine = session.engine
    in_child(open)
    with host.session("of the child", "gpt-4o", 16_000, engine=session_engine) as child:
        assert child.turn(chat(40)).report["new"] == 0


def test_what_a_child_writes_stays_when_its_parent_has_closed_everything(tmp_path: Path) -> None:
    """SQLite's locks belong to a process. A child that took its parent's lock table for its own would lose its log."""
    home = tmp_path / "home"
    host = Host(home, offline=True)
    session = host.session("of the parent", "gpt-4o", 16_000, engine="lcm")
    session.turn(chat(4))
    opened, opens = os.pipe()
    goes_on, go_on = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            own = Host(home, offline=True)
            mine = own.session("of the child", "gpt-4o", 16_000, engine="lcm")
            mine.turn(chat(4))
            os.write(opens, b"x")
            os.read(goes_on, 1)
            # Neither the parent nor any other process has these files open any more.
            mine.turn(chat(8))
            mine.close()
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    assert os.read(opened, 1) == b"x"
    session.close()
    del session, host
    gc.collect()
    script = (
        "import contexture, sys\n"
        "with contexture.Host(sys.argv[1], offline=True).session('of another', 'gpt-4o', 16_000, engine='lcm') as one:\n"
        "    one.turn([{'role': 'user', 'content': 'Hello'}])\n"
    )
    subprocess.run([sys.executable, "-c", script, str(home)], check=True, timeout=60)
    os.write(go_on, b"x")
    wait_for(child)
    again = Host(home, offline=True)
    for id, turns in (("of the child", 8), ("of the parent", 4)):
        with again.session(id, "gpt-4o", 16_000, engine="lcm") as one:
            assert one.turn(chat(turns)).report["new"] == 0
            assert f"question {turns - 1}" in one.call_tool("lcm_grep", {"pattern": f"question {turns - 1}"})


def test_a_session_is_free_once_its_holder_has_closed_it_whatever_children_there_are(tmp_path: Path) -> None:
    host = Host(tmp_path / "home", offline=True)
    session = host.session("s", "gpt-4o", 16_000)
    ends, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ends, 1)
        os._exit(0)
    session.close()
    script = "import contexture, sys; contexture.Host(sys.argv[1], offline=True).session('s', 'gpt-4o', 16_000, wait_s=1)"
    try:
        subprocess.run([sys.executable, "-c", script, str(tmp_path / "home")], check=True, timeout=60)
    finally:
        os.write(end, b"x")
        wait_for(child)


def test_forks_beside_threads_that_use_the_host(tmp_path: Path) -> None:
    home = tmp_path / "home"
    host = Host(home, offline=True)
    stop = threading.Event()
    errors: list[BaseException] = []

    def play(name: str) -> None:
        try:
            with host.session(name, "gpt-4o", 16_000, engine="lcm") as session:
                turns = 1
                while not stop.is_set():
                    session.turn(chat(turns, words=5))
                    turns += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=play, args=(f"thread {at}",)) for at in range(3)]
    for thread in threads:
        thread.start()

    def open(at: int) -> None:
        own = Host(home, offline=True)
        with own.session(f"child {at}", "gpt-4o", 16_000, engine="lcm") as session:
            session.turn(chat(3, words=5))
            assert "question 1" in session.call_tool("lcm_grep", {"pattern": "question 1"})
        gc.collect()

    try:
        # At once, while lazily initialized values are being initialized.
        for at in range(8):
            in_child(lambda: open(at))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    for at in range(8):
        with host.session(f"child {at}", "gpt-4o", 16_000, engine="lcm") as session:
            assert session.turn(chat(3, words=5)).report["new"] == 0


def in_pool(work: tuple[str, int]) -> int:
    home, at = work
    with Host(home, offline=True).session(f"worker {at}", "gpt-4o", 16_000, engine="lcm") as session:
        return len(session.turn(chat(3)).messages)


def test_a_pool_of_processes(tmp_path: Path, host: Host, session: Session) -> None:
    home = str(tmp_path / "home")
    with multiprocessing.get_context("fork").Pool(3) as pool:
        lengths = pool.map_async(in_pool, [(home, at) for at in range(9)]).get(60)
    assert lengths == [6] * 9
    assert session.turn(chat(40)).report["new"] == 0


def test_children_of_children(tmp_path: Path, host: Host, session: Session) -> None:
    def child() -> None:
        own = Host(tmp_path / "home", offline=True)
        mine = own.session("of the child", "gpt-4o", 16_000, engine="lcm")
        mine.turn(chat(2))

        def grandchild() -> None:
            with pytest.raises(ContextureError, match="fork"):
                mine.turn(chat(2))
            with pytest.raises(ContextureError, match="fork"):
                session.turn(chat(2))
            with Host(tmp_path / "home", offline=True).session("of the grandchild", "gpt-4o", 16_000) as last:
                last.turn(chat(2))

        in_child(grandchild)
        assert mine.turn(chat(2)).report["new"] == 0

    in_child(child, 60)


SCRIPTS = {
    "an exit by itself": "os._exit(0) if os.fork() else None",
    "an exit of the interpreter": "child = os.fork()\nif child == 0: sys.exit(0)\nos.waitpid(child, 0)",
    "a cycle that is collected": (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    class Cycle: pass\n"
        "    cycle = Cycle(); cycle.own = cycle; cycle.session = session; cycle.host = host\n"
        "    del cycle, session, host\n"
        "    gc.collect(); sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0"
    ),
    "a process of multiprocessing": (
        "import multiprocessing\n"
        "process = multiprocessing.get_context('fork').Process(target=print, args=('here',))\n"
        "process.start(); process.join(); assert process.exitcode == 0"
    ),
    "a host at the end of a child": (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    own = contexture.Host(sys.argv[1], offline=True)\n"
        "    mine = own.session('t', 'gpt-4o', 16_000, engine='lcm')\n"
        "    mine.turn([{'role': 'user', 'content': 'Hello'}])\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0"
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_end_of_a_child(name: str, tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import contexture, gc, os, sys
        host = contexture.Host(sys.argv[1], offline=True)
        session = host.session("s", "gpt-4o", 16_000, engine="lcm")
        session.turn([{"role": "user", "content": "Hello"}])
        """
    )
    command = [sys.executable, "-W", "ignore", "-c", script + SCRIPTS[name], str(tmp_path / "home")]
    subprocess.run(command, check=True, timeout=60)


class Model:
    name = "of the program"
    context_length = 32_000

    def complete(self, system: str, prompt: str, max_tokens: int) -> str:
        return f"Written by {os.getpid()}."


def test_a_model_of_the_program_answers_in_the_child(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("compression: {wait_for_model: true}")
    model = Model()

    def compact(id: str) -> None:
        with Host(home, model=model).session(id, "gpt-4o", 16_000, engine="lcm") as session:
            places: list[Any] = session.turn(chat(40), compact="force").places
            texts = [place.text for place in places if isinstance(place, contexture.Summary)]
            assert any(f"Written by {os.getpid()}." in text for text in texts), texts

    compact("of the parent")
    in_child(lambda: compact("of the child"))


def test_a_model_behind_the_network_answers_in_the_child(tmp_path: Path) -> None:
    server = Server()
    server.says = "What the model makes of it."
    home = tmp_path / "home"
    home.mkdir()
    model = {"provider": "openai", "base_url": server.url, "model": "small"}
    config = {"compression": {"wait_for_model": True}, "auxiliary": {"compression": model}}
    (home / "config.yaml").write_text(json.dumps(config))

    def compact(id: str) -> None:
        with Host(home).session(id, "gpt-4o", 16_000, engine="lcm") as session:
            turn = session.turn(chat(40), compact="force")
            texts = [place.text for place in turn.places if isinstance(place, contexture.Summary)]
            assert any("What the model makes" in text for text in texts), (texts, turn.report)

    compact("of the parent")
    in_child(lambda: compact("of the child"))


def test_a_fork_beside_the_first_calls_of_a_process(tmp_path: Path) -> None:
    """Values that are initialized once, such as the token tables, are initialized by a thread that the child lacks."""
    script = textwrap.dedent(
        """
        import contexture, os, sys, threading, time
        def count():
            contexture.count_tokens("some words", "gpt-4o")
        thread = threading.Thread(target=count)
        thread.start()
        time.sleep(float(sys.argv[1]))
        child = os.fork()
        if child == 0:
            count()
            os._exit(0)
        thread.join()
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    for pause in ("0", "0.002", "0.01", "0.03"):
        subprocess.run([sys.executable, "-W", "ignore", "-c", script, pause], check=True, timeout=30)
