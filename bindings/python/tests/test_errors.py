"""An invalid value raises one of the package's own errors, which names the value: never a panic, nor the message of an
internal conversion."""

from __future__ import annotations

import json
from collections import UserDict
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

import contexture
from contexture import ArgumentError, ContextureError, FormatError, Host, Session

from conftest import chat
from test_engine import LastTen

HUGE = 10**5000
DEEP: list[Any] = []
DEEP.append(DEEP)

#: Values that are not numbers of tokens, for any argument.
NO_TOKENS: list[Any] = [
    -1, -(2**70), 2**53 + 1, 2**64, HUGE, True, 1.5, float("nan"), float("inf"), -0.5, "5", "", b"5", [], {}, object(), DEEP,
]  # fmt: skip
#: Values that are not texts.
NO_TEXT: list[Any] = [5, HUGE, 1.5, True, b"text", [], {}, object(), "\ud800"]


def is_own(act: Callable[[], object], about: str | None = None, kind: type[Exception] = ContextureError) -> None:
    """Checks that it raises one of the package's own errors, with a text that mentions ``about``."""
    with pytest.raises(BaseException) as raised:
        act()
    error = raised.value
    assert isinstance(error, kind), f"{type(error).__name__}: {error}"
    text = str(error)
    assert text and len(text) < 2_000 and "PanicException" not in text and "a bug" not in text, text
    if about is not None:
        assert about in text, text


@pytest.fixture
def session(host: Host) -> Iterator[Session]:
    with host.session("s", "gpt-4o", 128_000, engine="lcm") as session:
        session.turn(chat(2))
        yield session
        # The session still works after every attempt.
        assert session.turn(chat(3)).messages == chat(3)


class Named:
    name = "named"
    context_length: Any = None

    def complete(self, system: str, prompt: str, max_tokens: int) -> str:
        return "Well."


def test_arguments_of_every_call(tmp_path: Path, host: Host, session: Session) -> None:
    user = [{"role": "user", "content": "Hello"}]
    opens: dict[str, Any] = {"id": "t", "model": "gpt-4o", "context_length": 128_000}
    replays: dict[str, Any] = {"document": user, "model": "gpt-4o", "context_length": 128_000, "offline": True}

    def registers(name: Any, engine: Any) -> None:
        contexture.register_engine(name, engine)

    def model(**members: Any) -> Any:
        return type("Model", (Named,), members)()

    # An argument, a function that takes it, and invalid values.
    table: list[tuple[str, Callable[[Any], object], list[Any]]] = [
        ("home", lambda it: Host(it), [5, 1.5, [], object()]),
        ("config", lambda it: Host(tmp_path / "other", it), [5, 1.5, [], object()]),
        ("offline", lambda it: Host(tmp_path / "other", offline=it), ["yes", 1, []]),
        ("model", lambda it: Host(tmp_path / "other", model=it), [5, "gpt-4o", object(), model(name=5)]),
        ("model", lambda it: Host(tmp_path / "other", model=model(context_length=it)), [*NO_TOKENS, 0]),
        ("model", lambda it: Host(tmp_path / "other", model=model(complete=it)), [5, "x"]),
        ("id", lambda it: host.session(**{**opens, "id": it}), [*NO_TEXT, None, "", "  "]),
        ("model", lambda it: host.session(**{**opens, "model": it}), [*NO_TEXT, None]),
        ("context_length", lambda it: host.session(**{**opens, "context_length": it}), [*NO_TOKENS, None, 0]),
        ("max_output_tokens", lambda it: host.session(**opens, max_output_tokens=it), NO_TOKENS),
        ("engine", lambda it: host.session(**opens, engine=it), NO_TEXT),
        ("", lambda it: host.session(**opens, engine=it), ["", " ", "LCM", "../lcm", "nonesuch", "x" * 500, "\0"]),
        ("", lambda it: host.tools(it), ["", " ", "LCM", "../lcm", "nonesuch", "x" * 500, "\0", *NO_TEXT]),
        ("wait_s", lambda it: host.session(**opens, wait_s=it), [-1, float("nan"), float("inf"), HUGE, "2", True, b"", []]),
        ("format", lambda it: host.session(**opens, format=it), [5, "", "OpenAI", "bedrock", b"openai", []]),
        ("summaries", lambda it: host.session(**opens, summaries=it), [5, "", "Own", True]),
        ("note", lambda it: host.session(**opens, note=it), [5, "", "yes", 0]),
        ("unrelated", lambda it: host.session(**opens, unrelated=it), [5, "", "new", True]),
        ("compact", lambda it: session.turn(user, compact=it), [5, "", "maybe", True, "\ud800"]),
        ("fixed_tokens", lambda it: session.turn(user, fixed_tokens=it), NO_TOKENS),
        ("keep_from", lambda it: session.turn(user, keep_from=it), NO_TOKENS),
        ("focus", lambda it: session.turn(user, focus=it), NO_TEXT),
        ("memory", lambda it: session.turn(user, memory=it), NO_TEXT),
        ("tokens", lambda it: session.preflight(it), [*NO_TOKENS, None]),
        ("model", lambda it: session.set_model(it, 128_000), [*NO_TEXT, None]),
        ("context_length", lambda it: session.set_model("gpt-4o", it), [*NO_TOKENS, None, 0]),
        ("max_output_tokens", lambda it: session.set_model("gpt-4o", 128_000, it), NO_TOKENS),
        ("name", lambda it: session.call_tool(it, {}), [*NO_TEXT, None]),
        ("", lambda it: session.call_tool("lcm_grep", it), [5, None, [], "[", "", b"\xff", object(), {"pattern": 5}, {1: 2}, DEEP]),
        ("text", lambda it: contexture.count_tokens(it, "gpt-4o"), [*NO_TEXT, None]),
        ("model", lambda it: contexture.count_tokens("text", it), [*NO_TEXT, None]),
        ("", lambda it: contexture.replay(**{**replays, "document": it}), [5, None, "x", b"\xff", [5], {}, object(), DEEP, "\ud800"]),
        ("model", lambda it: contexture.replay(**{**replays, "model": it}), [*NO_TEXT, None]),
        ("context_length", lambda it: contexture.replay(**{**replays, "context_length": it}), [*NO_TOKENS, None, 0]),
        ("engine", lambda it: contexture.replay(**replays, home=tmp_path / "other", engine=it), NO_TEXT),
        ("", lambda it: contexture.replay(**replays, home=tmp_path / "other", engine=it), ["", "nonesuch"]),
        ("offline", lambda it: contexture.replay(**{**replays, "offline": it}), ["yes", 1]),
        ("", lambda it: registers(it, LastTen), [*NO_TEXT, None, "", " ", "a/b", "lcm", "compressor", "x y", "\0", "x" * 500]),
        ("engine", lambda it: registers("an-engine", it), [5, None, object, object(), LastTen({"session": "s"}, None)]),  # type: ignore[arg-type]
        ("name", lambda it: contexture.check_engine(it, LastTen), [*NO_TEXT, None]),
        ("engine", lambda it: contexture.check_engine("an-engine", it), [5, None, object]),
        ("conversations", lambda it: contexture.check_engine("an-engine", LastTen, it), NO_TOKENS),
        ("index", lambda it: contexture.safe_cut([], it), [True, 1.5, "5", None, b"", HUGE]),
        ("", lambda it: contexture.safe_cut(it, 0), [5, None, "x", [5], [{"id": -1}], object(), DEEP]),
    ]  # fmt: skip
    for row, (name, act, values) in enumerate(table):
        for value in values:
            print(f"row {row} of the table: {name}", type(value))  # Shown by pytest if it fails.
            is_own(lambda: act(value), name)


def test_words_are_value_errors_too(session: Session) -> None:
    for act in (lambda: session.preflight(-1), lambda: session.turn([], compact="maybe")):  # type: ignore[arg-type]
        is_own(act, kind=ArgumentError)
        is_own(act, kind=ValueError)


class Raises:
    def model_dump(self, **options: Any) -> Any:
        raise TypeError("deep inside")


class Mistaken:
    def model_dump(self) -> dict[str, Any]:
        return {"role": "user", "content": "Hello"}


NO_MESSAGES: list[Any] = [
    5, HUGE, 1.5, float("nan"), True, None, "Hello", "", b"{}", b"\xff", [], (), [{}], {1, 2}, object(), SimpleNamespace(role="user"),
    {}, {"content": "x"}, {"role": 5}, {"role": None}, {"role": ["user"]}, {"role": "user", "content": 5},
    {"role": "user", "content": {"text": "x"}}, {"role": "user", "content": b"x"}, {"role": "user", "content": object()},
    {"role": "user", "content": float("nan")}, {"role": "user", "content": "\ud800"}, {"role": "user", "content": "x", "n": HUGE},
    {"role": "user", "content": DEEP}, {"role": "user", "content": "x", 5: 6}, {"role": "user", "content": "x", "\ud800": 6},
    {"role": "user", "content": "x", "n": {1, 2}}, MagicMock(), Raises(), Mistaken(), iter([]), lambda: 5, type, Ellipsis,
]  # fmt: skip


def test_messages_that_are_none(session: Session) -> None:
    for message in NO_MESSAGES:
        is_own(lambda: session.turn([message]), "message 0", FormatError)
        is_own(lambda: session.turn([*chat(2), message]), "message", FormatError)
        is_own(lambda: session.turn({"messages": [message]}), "message 0", FormatError)
        is_own(lambda: session.answer([message]), kind=FormatError)
        if not isinstance(message, (list, tuple)):
            is_own(lambda: session.answer(message), kind=FormatError)


def test_requests_that_are_none(session: Session) -> None:
    for request in [5, None, 1.5, True, object(), {1, 2}, iter(chat(2)), (one for one in chat(2)), MagicMock(), LastTen]:
        is_own(lambda: session.turn(request), kind=FormatError)
    for body in [{}, {"messages": 5}, {"messages": None}, {"messages": {}}, {"input": chat(2)}, {"messages": chat(2), "tools": DEEP}]:
        is_own(lambda: session.turn(body), kind=FormatError)
    for text in ["", "x", "5", "null", "[", "{", '"x"', "{}", "[5]", '{"messages": 5}', "\ud800", "[" * 100_000, b"\xff", b"{}"]:
        is_own(lambda: session.turn(text), kind=FormatError)


def test_formats_of_other_providers(host: Host) -> None:
    with host.session("r", "gpt-4o", 128_000, format="responses") as responses:
        for body in [{}, {"input": 5}, {"input": [5]}, {"input": ["x"]}, {"input": [None]}, {"messages": chat(2)}]:
            is_own(lambda: responses.turn(body), kind=FormatError)
        assert responses.turn({"input": [{"role": "user", "content": "Hello"}]}).messages
    with host.session("a", "claude-opus-4-5", 128_000, format="anthropic") as anthropic:
        for body in [{}, {"messages": 5}, {"messages": [5]}, {"messages": ["x"]}, {"messages": [{"role": "user"}, 5]}]:
            is_own(lambda: anthropic.turn(body), kind=FormatError)
        assert anthropic.turn(chat(1)).messages
    with host.session("g", "gemini-3-pro", 128_000, format="gemini") as gemini:
        for body in [{}, {"contents": 5}, {"contents": [5]}, {"messages": chat(2)}]:
            is_own(lambda: gemini.turn(body), kind=FormatError)
        contents = [{"role": "user", "parts": [{"text": "Hello"}]}]
        body = {"contents": contents, "systemInstruction": {"parts": [{"text": "Be brief."}]}}
        assert gemini.turn(body).messages == contents
        gemini.answer(
            {"role": "model", "parts": [{"text": "Hello!"}]},
            {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11},
        )


FIGURES = [
    "prompt_tokens", "input_tokens", "completion_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
    "cache_read_input_tokens", "cache_creation_input_tokens", "reasoning_tokens",
]  # fmt: skip
DETAILS = [
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("completion_tokens_details", "reasoning_tokens"),
    ("output_tokens_details", "reasoning_tokens"),
]


def test_usage_that_is_none(session: Session) -> None:
    answer = {"role": "assistant", "content": "Well."}
    junk = [it for it in NO_TOKENS if it is not DEEP] + [{"a": 1}, [5], "many", DEEP]
    usages: list[Any] = [5, True, 1.5, "x", b"x", [], [5], object(), MagicMock(), Raises(), {"promt_tokens": 5}, {1: 2}, DEEP]
    usages += [{name: value} for name in FIGURES for value in junk]
    usages += [{"prompt_tokens": 9, name: value} for name in FIGURES[2:] for value in junk]
    usages += [{"prompt_tokens": 9, name: value} for name, _ in DETAILS for value in (5, "x", [], True, -1)]
    usages += [{"prompt_tokens": 9, name: {member: value}} for name, member in DETAILS for value in junk]
    for usage in usages:
        is_own(lambda: session.usage(usage), "usage", FormatError)
        is_own(lambda: session.answer(answer, usage), "usage", FormatError)
    for figures in ({"prompt_tokens": -1}, {"promt_tokens": 5}, {"prompt_tokens": "5"}):
        is_own(lambda: session.usage(**figures), "usage", FormatError)  # type: ignore[arg-type]
    is_own(lambda: session.usage(), "usage", ArgumentError)
    is_own(lambda: session.usage({"prompt_tokens": 5}, prompt_tokens=5), "usage", ArgumentError)


def test_usage_as_providers_report_it(session: Session) -> None:
    answer = {"role": "assistant", "content": "Well."}
    for usage in (
        {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "prompt_tokens_details": None},
        {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": None}},
        {"prompt_tokens": 9.0, "completion_tokens": None},
        {"input_tokens": 9, "cache_read_input_tokens": 3, "cache_creation_input_tokens": None, "service_tier": "standard"},
        UserDict(input_tokens=9, output_tokens=2),
        {},
        None,
    ):
        session.answer(answer, usage)


def test_values_that_are_like_others_are_read_as_those(session: Session) -> None:
    class Colour(IntEnum):
        RED = 1

    class Odd(float):
        def __repr__(self) -> str:
            return "Odd"

    class Role(str):
        pass

    messages = [
        {"role": Role("user"), "content": "x", "n": [Colour.RED, Odd(1.5), 10**30]},
        MappingProxyType({"role": "assistant", "content": "y"}),
        UserDict(role="user", content="z"),
    ]
    turn = session.turn(messages)
    assert [one is other for one, other in zip(turn.messages, messages)] == [True] * 3


CONFIGS = [
    "contxt: {engine: lcm}", "context: {engin: lcm}", "context: {engine: ''}", "context: {engine: 5}", "context: {engine: [lcm]}",
    "context: {engine: ../lcm}", "context: lcm", "[", "5", "- x", "compression: {threshold: 9}", "compression: {threshold: -1}",
    "compression: {threshold: .nan}", "compression: {treshold: 0.5}", "transcript: 5",
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_configurations(config: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config)

    def open() -> None:
        # The settings of engines are checked when a session is opened.
        Host(tmp_path / "home", path, offline=True).session("s", "gpt-4o", 128_000)

    is_own(open)


def test_settings_of_engines(tmp_path: Path) -> None:
    for number, settings in enumerate([{"embeder": "x"}, 5, {"soft_threshold": 9}, {"soft_threshold": "much"}]):
        path = tmp_path / f"{number}.yaml"
        path.write_text(json.dumps({"context": {"engine": "lcm", "engines": {"lcm": settings}}}))
        is_own(lambda: Host(tmp_path / str(number), path, offline=True).session("s", "gpt-4o", 128_000))


def test_folders_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for home in (file, file / "below", "/proc/none", "\0"):
        is_own(lambda: Host(home, offline=True))
    for config in (tmp_path / "none.yaml", tmp_path):
        is_own(lambda: Host(tmp_path / "home", config, offline=True))
