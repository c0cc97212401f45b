"""The command line of the package, which agents are set up to call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = [str(Path(sys.executable).with_name("contexture"))]
MODULE = [sys.executable, "-m", "contexture"]


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_an_agent_is_set_up_to_call_the_command_that_set_it_up(command: list[str], tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    (tmp_path / ".claude").mkdir()

    def run(command: list[str]) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd="/").stdout

    run([*command, "setup", "claude", "--yes"])
    settings = json.loads((tmp_path / ".claude" / "settings.json").read_text())
    hook = settings["hooks"]["PreCompact"][0]["hooks"][0]["command"]
    assert run(["sh", "-c", hook.partition(" hook ")[0] + " --version"]).startswith("contexture ")
    server = json.loads((tmp_path / ".claude.json").read_text())["mcpServers"]["contexture"]
    assert [server["command"], *server["args"]][: len(command)] == command
