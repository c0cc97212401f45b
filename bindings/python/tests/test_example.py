"""The example agent, against a model on a local port."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_driver import Model, question

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "agent.py"


def test_the_example_keeps_a_long_conversation_inside_its_window(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the example needs the package `openai`")
    model = Model()
    model.limit = 30_000
    asked = [question(at, "CALL lcm_grep END" if at == 20 else "").replace("\n", " ") for at in range(22)]
    environment = {**os.environ, "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none", "CONTEXTURE_HOME": str(tmp_path)}
    command = [sys.executable, str(EXAMPLE), "stand-in", "24000"]
    ran = subprocess.run(
        command, input="\n".join(asked), capture_output=True, text=True, env=environment, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert model.refused == [] and len(model.requests) == 23
    assert ran.stdout.count("It is as it is.") == 22 * 40
    found = model.requests[-2]["messages"][-1]
    assert found["role"] == "tool" and "question 0" in found["content"]
