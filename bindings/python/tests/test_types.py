"""Type checking: the stubs match the package, and a strict type checker accepts right programs and rejects wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")

RIGHT = """
from contexture import AsyncHost, AsyncSession, Changed, Decision, Host, Kept, Session, Summary, Turn
from typing import assert_type


class Helper:
    @property
    def name(self) -> str:
        return "helper"

    context_length = None

    def complete(self, system: str, prompt: str, max_tokens: int) -> str:
        return prompt


def plain() -> None:
    with Host("home", offline=True, model=Helper()) as host:
        with host.session("s", "gpt-4o", 128_000, format="anthropic") as session:
            turn = session.turn([{"role": "user", "content": "Hello"}], compact="force", keep_from=1)
            assert_type(turn, Turn)
            assert_type(turn.places, list[Kept | Changed | Summary])
            assert_type(session.preflight(5), Decision)


async def awaited() -> None:
    async with AsyncHost("home", offline=True) as host:
        assert_type(host, AsyncHost)
        assert_type(await AsyncHost.open(), AsyncHost)
        assert_type(await host.session("s", "gpt-4o", 128_000), AsyncSession)
        async with host.session("s", "gpt-4o", context_length=128_000, summaries="folded") as session:
            assert_type(session, AsyncSession)
            assert_type(await session.turn([], compact="never", focus="tests"), Turn)
            assert_type(await session.engine(), str)
            assert_type(await session.preflight(5), Decision)
            assert_type(await session.call_tool("lcm_grep", {"pattern": "x"}), str)
"""

#: Each line is a separate error.
WRONG = [
    'Host("home", offline="yes")',
    'Host(model=5)',
    'Host().session("s", "gpt-4o")',
    'Host().session("s", "gpt-4o", 128_000, format="bedrock")',
    'Host().session("s", "gpt-4o", 128_000).turn([], compact="maybe")',
    'AsyncHost("home", offline="yes")',
    'AsyncHost().session("s", "gpt-4o", "128000")',
    'AsyncHost().session("s", "gpt-4o", 128_000, summaries="none")',
    'await AsyncHost.open(config=5)',
    'await (await AsyncHost().session("s", "gpt-4o", 128_000)).turn([], compact="maybe")',
    'await (await AsyncHost().session("s", "gpt-4o", 128_000)).turn([], keep_form=5)',
    'await (await AsyncHost().session("s", "gpt-4o", 128_000)).set_model("gpt-4o")',
    'await (await AsyncHost().session("s", "gpt-4o", 128_000)).engine',
]


def mypy(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def test_a_strict_program(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    lines = ["from contexture import AsyncHost, Host", "async def wrong() -> None:", *(f"    {line}" for line in WRONG)]
    (tmp_path / "wrong.py").write_text("\n".join(lines))
    ran = mypy("mypy", "--strict", "--no-error-summary", "right.py", "wrong.py", cwd=tmp_path)
    found = {int(line.split(":")[1]) for line in ran.stdout.splitlines() if line.startswith("wrong.py") and ": error:" in line}
    assert found == set(range(3, 3 + len(WRONG))), ran.stdout + ran.stderr
    assert "right.py" not in ran.stdout, ran.stdout


def test_the_stubs_are_what_is_there(tmp_path: Path) -> None:
    # Only for type checkers, or from Hermes Agent or a framework, which may not be installed.
    allowed = ["contexture.hermes", "contexture.__main__"]
    for name in ("agent_framework", "langchain", "litellm", "openai_agents", "pydantic_ai"):
        allowed += [f"contexture.{name}", f"contexture.{name}.[^ ]+"]
    allowed += [f"contexture._native.{name}" for name in ("__all__", "Message", "Model")]
    (tmp_path / "allowed").write_text("\n".join(allowed).replace(".", "\\."))
    # The adapters are no stubs, and reading their frameworks takes a minute.
    frameworks = ("agent_framework", "agents", "langchain", "langchain_core", "litellm", "pydantic_ai")
    skipped = [f"[mypy-{name}.*]\nfollow_imports = skip\nignore_missing_imports = True\n" for name in frameworks]
    (tmp_path / "mypy.ini").write_text("[mypy]\n" + "".join(skipped))
    command = ["mypy.stubtest", "contexture", "--allowlist", "allowed", "--ignore-unused-allowlist", "--ignore-disjoint-bases"]
    ran = mypy(*command, "--mypy-config-file", "mypy.ini", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
