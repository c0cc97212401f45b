"""A long coding session with the provider simulator, for the tests of the adapters for agent frameworks."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from contexture._adapter import Sessions

REPOSITORY = Path(__file__).resolve().parents[3]

SYSTEM = "You are a careful coder. You check every module."
TASK = "Check all modules of the harbour, one after another."

#: Said once, in the middle of the first result of a tool.
FACT = "warning: the lighthouse keeper's code is 4711-heron"

#: What the agent's window is said to have, and the provider has.
WINDOW, REAL_WINDOW = 14_000, 16_000

ROUNDS = 60
MODEL = "gpt-5.2"


def shell(calls: list[str], command: str) -> str:
    """The result of a command: some 2,500 bytes, and different each time."""
    calls.append(command)
    at = len(calls)
    lines = [f"src/module_{at}.rs:{line}: warning: value {at * 7919 + line * 104729} is never read" for line in range(36)]
    if at == 1:
        lines[17] = FACT
    return "\n".join(lines)


class Provider:
    """A provider simulator in a process of its own, with a model that makes ``ROUNDS`` rounds of calls, or does what
    ``arguments`` say."""

    def __init__(self, folder: Path, window: int = REAL_WINDOW, *arguments: str) -> None:
        target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
        simulator = target / "debug" / "contexture-provider-simulator"
        assert simulator.exists(), f"{simulator} is not built: cargo build --workspace"
        self.record = folder
        #: The reports of the session's turns.
        self.turns: list[dict[str, Any]] = []
        search = ["--also", "20", "lcm_grep", json.dumps({"pattern": "4711-heron"})]
        arguments = arguments or ("--rounds", str(ROUNDS), *search)
        command = [str(simulator), "0", str(window), *arguments, "--record", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def report(self) -> dict[str, Any]:
        """What became of the requests. It is written a moment after each of them."""
        for _ in range(200):
            time.sleep(0.05)
            path = self.record / "report.json"
            report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
            requests, said = report.get("requests", []), report.get("said", [])
            if said and said[-1] == [len(requests) - 1, report["last_words"]]:
                return report
        raise AssertionError(f"the model did not finish: {report.get('violations')}, {said[-3:]}")

    def bodies(self) -> list[dict[str, Any]]:
        """All requests that came."""
        numbers = sorted(int(path.stem) for path in self.record.glob("[0-9]*.json"))
        return [json.loads((self.record / f"{number}.json").read_text()) for number in numbers]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def check(provider: Provider, sessions: Sessions, said: str, calls: list[str]) -> None:
    """Checks the session ``harbour``, which has ended: the last answer, what the provider saw, and that nothing is lost."""
    report = provider.report()
    assert said == report["last_words"]
    assert report["violations"] == [] and report["overflows"] == []
    assert len(report["requests"]) == ROUNDS + 1
    # Each fifth round has two calls.
    assert len(calls) == ROUNDS + ROUNDS // 5 and len(set(calls)) == len(calls)

    bodies = provider.bodies()
    sizes = [request["tokens"] for request in report["requests"]]
    whole = sum(len(shell(["x"], "")) for _ in calls) // 4
    assert max(sizes) < REAL_WINDOW < whole / 2, (max(sizes), whole)
    for body in bodies:
        assert _system(body).startswith(SYSTEM), body
        items = _items(body)
        assert any(TASK in json.dumps(item) for item in items)
        _check_pairs(items)

    # The fact left the window, and each of the model's own calls found it again.
    without = {at for at, body in enumerate(bodies) if FACT not in json.dumps(body)}
    found = [at for at, body in enumerate(bodies) if "4711-heron" in json.dumps(_items(body)[-1])]
    assert without >= {19, 39, 59} and found == [1, 20, 40, 60], (without, found)
    assert FACT in sessions.call_tool("harbour", "lcm_grep", {"pattern": "heron"})
    # A summary is where it belongs: before what is left of the conversation.
    for at in without - {0}:
        marked = [at for at, item in enumerate(_items(bodies[at])) if "[CONTEXT COMPACTION]" in json.dumps(item)]
        assert marked and marked[0] <= next(at for at, item in enumerate(_items(bodies[at])) if _calls(item)), bodies[at]

    # What comes back with the next request is known: the answer as it was shown, and the history as it was.
    assert sum(turn["new"] for turn in provider.turns) == 1 + len(calls) + 3
    assert not any(turn["branched"] or turn["revised"] or turn["warnings"] for turn in provider.turns), provider.turns
    # Between two compactions a request begins with the last one, so that the provider's prompt cache holds.
    with sessions.open("harbour") as session:
        compactions = session.status()["window"]["compactions"]
    items = [_items(body) for body in bodies]
    rewritten = sum(later[: len(earlier)] != earlier for earlier, later in zip(items, items[1:]))
    assert rewritten == compactions > 1, (rewritten, compactions)


def _system(body: dict[str, Any]) -> str:
    """The system prompt, which leads."""
    system = body.get("system") or body.get("instructions")
    if system is None:
        first = (body.get("messages") or body["input"])[0]
        assert first["role"] in ("system", "developer"), first
        system = first["content"]
    return system if isinstance(system, str) else "".join(block["text"] for block in system)


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    """What a request has, one call or result or text at a time."""
    if "messages" not in body:
        return list(body["input"])
    items = []
    for message in body["messages"]:
        content = message["content"] if "system" in body else None
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        # Only the Messages API has calls and results in blocks.
        items += [message] if blocks is None else [{"role": message["role"], **block} for block in blocks]
    return items


def _calls(item: dict[str, Any]) -> list[str]:
    """The ids of calls."""
    if item.get("type") == "function_call":
        return [item["call_id"]]
    return [item["id"]] if item.get("type") == "tool_use" else [call["id"] for call in item.get("tool_calls") or []]


def _check_pairs(items: list[dict[str, Any]]) -> None:
    """Each result is of a call before it, and all calls have one before the user or the system says anything."""
    open_calls: list[str] = []
    for item in items:
        result = item.get("tool_call_id") or item.get("tool_use_id")
        if item.get("type") == "function_call_output":
            result = item["call_id"]
        if result is not None:
            open_calls.remove(result)
        says = result is None and item.get("role") in ("user", "system", "developer")
        assert not (says and open_calls), (open_calls, item)
        open_calls += _calls(item)
    assert not open_calls
