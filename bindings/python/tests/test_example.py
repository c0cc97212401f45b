"""The example agent, against a model on a local port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermes_driver import Model, question

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLE = REPOSITORY / "examples" / "agent.py"


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


def test_the_example_keeps_a_providers_rules(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the example needs the package `openai`")
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    simulator = target / "debug" / "contexture-provider-simulator"
    assert simulator.exists(), f"{simulator} is not built: cargo build --workspace"
    record = tmp_path / "record"
    record.mkdir()
    # A window of 24,000 tokens, and answers of 8,000 bytes.
    serve = [str(simulator), "0", "24000", "--talk", "8000", "--record", str(record)]
    provider = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert provider.stdout is not None
        base = provider.stdout.readline().strip()
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": f"{base}/v1",
            "OPENAI_API_KEY": "none",
            "CONTEXTURE_HOME": str(tmp_path / "home"),
        }
        asked = "\n".join(f"This is question {at}." for at in range(24))
        command = [sys.executable, str(EXAMPLE), "gpt-5.2", "20000"]
        ran = subprocess.run(command, input=asked, capture_output=True, text=True, env=environment, timeout=120)
        assert ran.returncode == 0, ran.stderr
        assert "Line 1 of the answer to 23" in ran.stdout
        # It writes the report a moment after each request.
        for _ in range(100):
            report = json.loads((record / "report.json").read_text() or "{}")
            if len(report.get("requests", [])) >= 24:
                break
            time.sleep(0.1)
        assert len(report["requests"]) == 24
        assert report["violations"] == [] and report["overflows"] == []
    finally:
        provider.kill()
        provider.wait()
