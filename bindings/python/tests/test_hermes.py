"""The real Hermes Agent with our engine: what it stores is what was said, and every run completes.

Hermes is looked for in the environment that `CONTEXTURE_HERMES` names, else in `tests/real/installed/hermes`; the package
has to be installed there, too.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from provider import Provider

ROOT = Path(__file__).resolve().parents[3]
HERMES = Path(os.environ.get("CONTEXTURE_HERMES", ROOT / "tests/real/installed/hermes"))
PYTHON = HERMES / "bin" / "python"


def is_there() -> bool:
    if not PYTHON.exists():
        return False
    command = [str(PYTHON), "-c", "import agent.context_engine, contexture.hermes"]
    return subprocess.run(command, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(
    not is_there(), reason=f"no Hermes with the package `contexture` in {HERMES}: `CONTEXTURE_HERMES` names another"
)


def play(case: str, home: Path) -> dict[str, Any]:
    home.mkdir(exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HERMES", "CONTEXTURE"))}
    environment["HOME"] = str(home)
    driver = Path(__file__).with_name("hermes_driver.py")
    ran = subprocess.run(
        [str(PYTHON), str(driver), case, str(home)], capture_output=True, text=True, env=environment, timeout=600
    )
    results = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert ran.returncode == 0 and results, f"{ran.stdout[-3000:]}\n{ran.stderr[-6000:]}"
    result: dict[str, Any] = json.loads(results[-1].removeprefix("RESULT "))
    result["log"] = ran.stdout + ran.stderr
    assert result["refused"] == []
    return result


def sessions(home: Path, *arguments: str) -> str:
    """What the command says of what the lossless engine keeps."""
    command = [str(PYTHON), "-m", "contexture", "--config", str(home / "contexture" / "hermes.yaml")]
    command += ["sessions", *arguments]
    environment = {**os.environ, "CONTEXTURE_HOME": str(home / "contexture")}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def is_lossless(home: Path, session: str, asked: list[str]) -> list[dict[str, Any]]:
    """Each question once, in order, each with what was answered; and nothing that nobody said."""
    messages = [json.loads(line) for line in sessions(home, "export", session).splitlines()]
    shown = json.loads(sessions(home, "show", session))
    assert shown["messages"] == shown["in_conversation"] == len(messages)
    assert [text_of(one) for one in messages if one["role"] == "user"] == asked
    assert not any("[Summary" in text_of(one) or "_compressed_summary" in one for one in messages)
    calls = [call["id"] for one in messages for call in one.get("tool_calls") or []]
    assert calls == [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    answers = [text_of(one) for one in messages if one["role"] == "assistant" and not one.get("tool_calls")]
    said = [answer for answer in answers if answer.startswith("Answer ")]
    assert len(set(said)) == len(said) and len(answers) <= len(asked) + len(calls)
    assert messages[-1]["role"] == "assistant"
    return messages


@pytest.mark.parametrize("case", ["plain", "no_usage", "kept_in_place", "images", "parallel", "resumed", "here"])
def test_a_conversation_is_compacted_and_nothing_is_lost(case: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = play(case, home)
    assert result["compactions"] >= 1, result["log"][-3000:]
    is_lossless(home, "plain", result["asked"])
    assert (result.get("session") == "plain") == (case == "kept_in_place") or "session" not in result
    assert "lcm_grep" in result.get("tools", ["lcm_grep"])
    assert result.get("found", 1) and result.get("smaller", True)
    if case == "plain":
        told = hermes(home, "contexture")
        assert f"plain: {result['compactions']} by lcm; the last: " in told and "% less" in told
        assert "Summaries are made without a model." in told


def test_the_provider_refuses_for_want_of_room(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = play("overflow", home)
    assert result["compactions"] >= 1
    is_lossless(home, "plain", result["asked"])


def test_hermes_own_model_for_compression_writes_the_summaries(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = play("auxiliary", home)
    assert result["compactions"] >= 1 and result["used"], result["log"][-3000:]
    assert set(result["helped"]) == {"small"} and result["keys"] == ["Bearer of-the-helper"]
    is_lossless(home, "plain", result["asked"])
    assert "of-the-helper" not in (home / "contexture" / "hermes.yaml").read_text()


def test_another_process_has_the_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = play("held", home)
    assert result["compactions"] >= 1 and "another name" in result["log"] + log_of(home)
    is_lossless(home, result["own"], result["asked"])


def test_an_engine_that_fails_costs_no_run(tmp_path: Path) -> None:
    play("failing", tmp_path / "home")


def test_two_agents_have_a_conversation_each(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = play("two", home)
    assert result["compactions"] >= 1
    is_lossless(home, "plain", result["asked"])
    is_lossless(home, "other", result["other"])


def test_a_background_review_is_no_part_of_the_conversation(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = play("fork", home)
    assert result["reviewed"] >= 1 and result["compactions"] >= 1
    messages = is_lossless(home, "plain", result["asked"])
    assert not any("REVIEW" in text_of(one) for one in messages)


def log_of(home: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in (home / "logs").glob("*.log"))


def hermes(home: Path, *arguments: str, program: str = "hermes") -> str:
    environment = {**os.environ, "HERMES_HOME": str(home), "HOME": str(home), "COLUMNS": "200"}
    command = [str(HERMES / "bin" / program), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, input="")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_hermes_shows_and_enables_it(tmp_path: Path) -> None:
    hermes(tmp_path, "plugins", "enable", "contexture")
    assert "Hermes runs its own engine `compressor`" in hermes(tmp_path, "contexture")
    hermes(tmp_path, "config", "set", "context.engine", "contexture")
    listed = hermes(tmp_path, "plugins", "list")
    assert "contexture" in listed and "hermes contexture" in " ".join(listed.split())
    assert "contexture" in (tmp_path / "config.yaml").read_text()
    told = hermes(tmp_path, "contexture")
    assert "Context engine: lcm (contexture" in told and "Nothing was compacted yet." in told
    hermes(tmp_path, "config", "set", "context.engines.contexture.engin", "lcm")
    assert "has the setting `engin`" in hermes(tmp_path, "contexture")


def test_the_command_sets_hermes_up(tmp_path: Path) -> None:
    """Nothing but the installed package: a session that does not fit is compacted, and an undo restores the settings."""
    home, record = tmp_path / "home", tmp_path / "record"
    home.mkdir()
    record.mkdir()
    window = 64_000
    provider = Provider(record, window, "--rounds", "30", "--result", "12000")
    mine = f"# mine\nmodel:\n  default: m\n  provider: custom\n  base_url: {provider.url}/v1\n  api_key: x\n"
    mine += f"  context_length: {window}\nagent:\n  max_turns: 500\n"
    settings = home / "config.yaml"
    settings.write_text(mine)
    hermes(home, "setup", "hermes", "--yes", program="contexture")
    said = hermes(home, "-z", "Check all modules.", "--yolo")
    report = provider.report()
    provider.close()
    assert report["last_words"] in said
    assert report["violations"] == [] and report["overflows"] == []
    told = hermes(home, "contexture")
    assert " by lcm; the last: " in told and "% less" in told
    hermes(home, "setup", "--undo", "hermes", "--yes", program="contexture")
    assert settings.read_text() == mine
