"""Engines in processes of their own: the program that runs them comes with the wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import contexture
from conftest import chat

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "libkeep_tail.so"
PROGRAM = Path(contexture.__file__).with_name("contexture-engine-host")

pytestmark = [
    pytest.mark.skipif(not LIBRARY.exists(), reason=f"no plugin {LIBRARY}: `cargo build -p keep-tail` builds it"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="the package was not installed from a wheel of `.ci/wheel`"),
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with the plugin, and nothing on the PATH that could run it."""
    home = tmp_path / "home"
    plugin = home / "plugins" / "context_engine" / "keep-tail"
    plugin.mkdir(parents=True)
    for file in (LIBRARY, ROOT / "plugins" / "context_engine" / "keep-tail" / "plugin.yaml"):
        shutil.copy(file, plugin)
    settings = {"context": {"engine": "keep-tail", "isolation": "process"}}
    (home / "config.yaml").write_text(json.dumps(settings))
    return home


def test_the_package_brings_the_program_that_runs_an_engine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    host = contexture.Host(home, offline=True)
    with host.session("s", "gpt-4o", 16_000, engine="keep-tail") as session:
        assert session.turn(chat(40), compact="force").report["compaction"]["outcome"] == "compacted"
        children = " ".join(task.read_text() for task in Path("/proc/self/task").glob("*/children")).split()
        programs = [Path(f"/proc/{child}/exe").resolve() for child in children]
        assert PROGRAM.resolve() in programs, programs


def test_so_does_the_command_line(home: Path) -> None:
    environment = {"CONTEXTURE_HOME": str(home), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "contexture", "engines", "doctor"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "in a process of its own" in ran.stdout and ran.returncode == 0, ran.stdout + ran.stderr
