"""What the pages of the package show, as a reader would try it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contexture._adapter import Sessions

from provider import Provider

REPOSITORY = Path(__file__).resolve().parents[3]
GUIDE = (REPOSITORY / "docs" / "python.md").read_text()


def section(title: str) -> str:
    """A section of the guide."""
    return GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def block(text: str, language: str) -> str:
    """The first block of this language."""
    return text.split(f"```{language}\n")[1].split("```")[0]


def test_the_guide_replays_a_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONTEXTURE_HOME", str(tmp_path))
    monkeypatch.chdir(REPOSITORY)
    shown = section("Replay")
    exec(block(shown, "python"), {})
    assert capsys.readouterr().out == block(shown, "text")


def test_the_engine_of_the_guide_holds_everything() -> None:
    names: dict[str, Any] = {}
    exec(block(section("An engine in Python"), "python"), names)
    assert names["held"], names["table"]


EXAMPLES = {
    "LangChain": ("langchain", "langchain_openai"),
    "OpenAI Agents SDK": ("agents",),
    "Pydantic AI": ("pydantic_ai",),
    "LiteLLM": ("litellm",),
    "Microsoft Agent Framework": ("agent_framework", "agent_framework_openai"),
}


def example(framework: str) -> str:
    """The example of an agent framework."""
    return block(section("Agent frameworks").split(f"\n### {framework}\n")[1].split("\n### ")[0], "python")


@pytest.mark.parametrize("framework", EXAMPLES)
def test_the_example_of_a_framework_runs(
    framework: str, provider: Provider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for module in EXAMPLES[framework]:
        pytest.importorskip(module, reason=f"{framework} is not installed")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("CONTEXTURE_HOME", str(tmp_path / "home"))
    shown = example(framework)
    assert len([line for line in shown.splitlines() if line]) <= 10
    names: dict[str, Any] = {}
    exec(shown, names)
    # It was asked with the engine's tools, and has a session of that name.
    report = provider.report()
    assert capsys.readouterr().out.strip() == report["last_words"]
    assert report["requests"][-1]["tools"] > 0 and not any(turn["branched"] for turn in provider.turns)
    [adapter] = [value for value in names.values() if isinstance(getattr(value, "sessions", None), Sessions)]
    assert "Hello" in adapter.sessions.call_tool("work", "lcm_grep", {"pattern": "Hello"})


def test_extra_strict_types_in_the_examples_of_all_frameworks(tmp_path: Path) -> None:
    for module in {module for modules in EXAMPLES.values() for module in modules} | {"mypy"}:
        pytest.importorskip(module, reason=f"{module} is not installed")
    for number, framework in enumerate(EXAMPLES):
        (tmp_path / f"example_{number}.py").write_text(example(framework))
    command = [sys.executable, "-m", "mypy", "--strict", "."]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_guide_names_the_versions_that_are_tested() -> None:
    tested = (REPOSITORY / "bindings" / "python" / "tests" / "frameworks.txt").read_text()
    named = re.findall(r"\| `([a-z-]+)` ([0-9.]+) \|", section("Agent frameworks"))
    assert len(named) == len(EXAMPLES)
    for package, version in named:
        assert f"{package}=={version}\n" in tested


def test_the_readme_works_outside_the_repository() -> None:
    readme = (REPOSITORY / "bindings" / "python" / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert links and all(link.startswith("https://") for link in links), links
    for link in links:
        _, is_file, path = link.partition("/blob/main/")
        assert not is_file or (REPOSITORY / path.split("#")[0]).exists(), link


def test_the_package_has_its_licences_and_addresses() -> None:
    folder = REPOSITORY / "bindings" / "python"
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for name in project["license-files"]:
        assert (folder / name).read_text() == (REPOSITORY / name).read_text()
    assert all(url.startswith("https://") for url in project["urls"].values())
