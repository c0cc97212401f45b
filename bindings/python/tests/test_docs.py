"""What the pages of the package show, as a reader would try it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

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
