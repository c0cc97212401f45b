"""Real conversations of the real Hermes Agent, in Hermes' own interpreter: `python hermes_driver.py CASE HOME`.

A model stands on a local port, which refuses what a provider would refuse. What was said and what was seen is printed as
JSON; `test_hermes.py` judges it.
"""

from __future__ import annotations

import http.server
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

WINDOW = 64_000


class Model:
    """A model of chat completions on a local port."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.keys: list[str] = []
        #: What it answers, where that is always the same.
        self.says: str | None = None
        self.reports_usage = True
        #: Prompts of more tokens are refused with 400.
        self.limit: int | None = None
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.reply(200, {"object": "list", "data": [{"id": "stand-in", "object": "model"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.keys.append(self.headers.get("authorization", ""))
                if not self.path.endswith("/chat/completions"):
                    return self.reply(404, {"error": {"message": "not found"}})
                status, answer = model.answer(body)
                if status != 200 or not body.get("stream"):
                    return self.reply(status, answer)
                self.stream(answer)

            def reply(self, status: int, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def stream(self, answer: dict[str, Any]) -> None:
                choice = answer["choices"][0]
                delta = dict(choice["message"])
                for at, call in enumerate(delta.get("tool_calls") or []):
                    call["index"] = at
                base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "stand-in"}
                chunks = [
                    {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                    {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
                ]
                if "usage" in answer:
                    chunks.append({**base, "choices": [], "usage": answer["usage"]})
                data = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(data.encode())))
                self.end_headers()
                self.wfile.write(data.encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        messages = body["messages"]
        self.requests.append(body)
        wrong = broken(messages)
        if wrong:
            self.refused.append(wrong)
            return 400, {"error": {"message": wrong, "type": "invalid_request_error"}}
        tokens = len(json.dumps(messages)) // 4
        if self.limit and tokens > self.limit:
            text = f"This model's maximum context length is {self.limit} tokens. However, your messages resulted in "
            text += f"{tokens} tokens. Please reduce the length of the messages."
            error = {"message": text, "type": "invalid_request_error", "code": "context_length_exceeded"}
            return 400, {"error": error}
        last = messages[-1]
        message: dict[str, Any] = {"role": "assistant", "content": None}
        reason = "stop"
        text = text_of(last)
        if last["role"] == "user" and "CALL" in text:
            names = text.split("CALL", 1)[1].split("END")[0].split()
            message["tool_calls"] = [
                {
                    "id": f"call_{len(self.requests)}_{at}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments(name, at))},
                }
                for at, name in enumerate(names)
            ]
            reason = "tool_calls"
        else:
            message["content"] = self.says or f"Answer {len(self.requests)}. " + "It is as it is. " * 40
        answer = {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "stand-in",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        }
        if self.reports_usage:
            answer["usage"] = {"prompt_tokens": tokens, "completion_tokens": 100, "total_tokens": tokens + 100}
        return 200, answer


def arguments(name: str, at: int) -> dict[str, Any]:
    if name == "lcm_grep":
        return {"pattern": "question 0"}
    return {"path": os.environ["BIG_FILE"], "offset": 1 + at * 50, "limit": 50}


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)


def broken(messages: list[dict[str, Any]]) -> str | None:
    """What a provider would refuse about these messages."""
    waiting: list[str] = []
    for at, message in enumerate(messages):
        unknown = set(message) - {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}
        if unknown:
            return f"message {at} has unknown members: {sorted(unknown)}"
        if message["role"] == "system" and at > 0:
            return f"message {at} is a system message"
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"message {at} answers no call"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"message {at} comes before the answers to {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls") or []]
    return f"calls without answers: {waiting}" if waiting else None


def question(number: int, ask: str = "") -> str:
    return f"question {number}: {ask} " + f"Why is part {number} of the whole as it is, and what follows? " * 180


class Place:
    """Hermes' home, its database, and agents in it."""

    def __init__(self, home: Path, model: Model, **compression: Any) -> None:
        from hermes_state import SessionDB

        self.home, self.model = home, model
        self.db = SessionDB(home / "state.db")

    def agent(self, session: str, **options: Any) -> Any:
        from run_agent import AIAgent

        options = {"enabled_toolsets": ["file", "context_engine"], **options}
        return AIAgent(
            base_url=self.model.url,
            api_key="none",
            provider="custom",
            api_mode="chat_completions",
            model="stand-in",
            quiet_mode=True,
            skip_context_files=True,
            skip_memory=True,
            session_id=session,
            session_db=self.db,
            **options,
        )

    def play(self, agent: Any, questions: list[Any], history: list[Any] | None = None) -> list[Any]:
        for one in questions:
            result = agent.run_conversation(one, conversation_history=history)
            assert result.get("completed") and not result.get("failed"), {
                key: value for key, value in result.items() if key != "messages"
            }
            history = result["messages"]
        assert history is not None
        return history


def in_place(home: Path, settings: dict[str, Any] | None = None, **more: Any) -> None:
    """Writes Hermes' configuration."""
    config = {
        "plugins": {"enabled": ["contexture"]},
        "context": {"engine": "contexture", "engines": {"contexture": settings or {}}},
        "model": {"context_length": WINDOW},
        # A compaction gives the conversation another id.
        "compression": {"in_place": False},
        **more,
    }
    (home / "config.yaml").write_text(json.dumps(config))


def is_ours(agent: Any) -> None:
    assert type(agent.context_compressor).__module__ == "contexture.hermes", agent.context_compressor


def plain(home: Path, model: Model, **config: Any) -> dict[str, Any]:
    """A long conversation with tools, compacted several times."""
    in_place(home, **config)
    place = Place(home, model)
    agent = place.agent("plain")
    is_ours(agent)
    asked = [question(at, "CALL read_file END" if at % 5 == 3 else "") for at in range(22)]
    history = place.play(agent, asked)
    names = [tool["function"]["name"] for tool in model.requests[-1]["tools"]]
    agent.shutdown_memory_provider(history)
    return {
        "asked": asked,
        "tools": names,
        "compactions": agent.context_compressor.compression_count,
        "session": agent.session_id,
    }


def auxiliary(home: Path, model: Model) -> dict[str, Any]:
    """Hermes has a model for compression at a provider of its configuration, known by its name."""
    helper = Model()
    helper.says = "<think>hm</think>The helper's summary: all parts are as they are."
    result = plain(
        home,
        model,
        custom_providers=[{"name": "helper", "base_url": helper.url, "api_key": "of-the-helper"}],
        auxiliary={"compression": {"provider": "helper", "model": "small"}},
    )
    prompts = "".join(text_of(message) for request in model.requests for message in request["messages"])
    return {
        **result,
        "helped": [request["model"] for request in helper.requests],
        "keys": sorted(set(helper.keys)),
        "used": "The helper's summary" in prompts and "<think>" not in prompts,
    }


def no_usage(home: Path, model: Model) -> dict[str, Any]:
    model.reports_usage = False
    return plain(home, model)


def kept_in_place(home: Path, model: Model) -> dict[str, Any]:
    return plain(home, model, compression={"in_place": True})


def parallel(home: Path, model: Model) -> dict[str, Any]:
    """Several calls in one answer, the engine's own tool among them."""
    in_place(home)
    place = Place(home, model)
    agent = place.agent("plain")
    asked = [question(at, "CALL read_file read_file lcm_grep END" if at % 2 else "") for at in range(16)]
    history = place.play(agent, asked)
    agent.shutdown_memory_provider(history)
    found = [text_of(one) for one in history if one.get("role") == "tool" and "question 0" in text_of(one)]
    return {"asked": asked, "found": len(found), "compactions": agent.context_compressor.compression_count}


def images(home: Path, model: Model) -> dict[str, Any]:
    in_place(home)
    place = Place(home, model)
    agent = place.agent("plain")
    pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    asked: list[Any] = []
    for at in range(20):
        parts = [{"type": "text", "text": question(at)}, {"type": "image_url", "image_url": {"url": pixel}}]
        asked.append(parts if at % 3 == 0 else question(at))
    history = place.play(agent, asked)
    agent.shutdown_memory_provider(history)
    return {
        "asked": [text_of({"content": one}) for one in asked],
        "compactions": agent.context_compressor.compression_count,
    }


def resumed(home: Path, model: Model) -> dict[str, Any]:
    """Another agent goes on from the database, twice."""
    in_place(home)
    place = Place(home, model)
    asked = [question(at, "CALL read_file END" if at % 5 == 3 else "") for at in range(30)]
    session, compactions = "plain", 0
    history = None
    for part in (asked[:12], asked[12:22], asked[22:]):
        agent = place.agent(session)
        history = place.play(agent, part, history)
        session, compactions = agent.session_id, compactions + agent.context_compressor.compression_count
        agent.shutdown_memory_provider(history)
        history = place.db.get_messages_as_conversation(session)
    return {"asked": asked, "compactions": compactions, "session": session}


def here(home: Path, model: Model) -> dict[str, Any]:
    """`/compress here 2`: only the head is given to the engine."""
    from hermes_cli.partial_compress import rejoin_compressed_head_and_tail, split_history_for_partial_compress

    in_place(home)
    place = Place(home, model)
    agent = place.agent("plain")
    asked = [question(at) for at in range(8)]
    history = place.play(agent, asked)
    head, tail = split_history_for_partial_compress(history, 2)
    compressed, _ = agent._compress_context(head, "", approx_tokens=30_000, force=True)
    history = rejoin_compressed_head_and_tail(compressed, tail)
    more = [question(at) for at in range(8, 12)]
    history = place.play(agent, more, history)
    agent.shutdown_memory_provider(history)
    return {
        "asked": asked + more,
        "smaller": len(compressed) < len(head),
        "tail": len(tail),
        "compactions": agent.context_compressor.compression_count,
    }


def overflow(home: Path, model: Model) -> dict[str, Any]:
    """The window is smaller than Hermes thinks: the provider refuses with 400."""
    in_place(home, model={"context_length": 200_000})
    model.limit, model.reports_usage = 50_000, False
    place = Place(home, model)
    agent = place.agent("plain")
    asked = [question(at) for at in range(26)]
    history = place.play(agent, asked)
    agent.shutdown_memory_provider(history)
    return {"asked": asked, "compactions": agent.context_compressor.compression_count}


def held(home: Path, model: Model) -> dict[str, Any]:
    """Another process has the session."""
    import subprocess

    in_place(home)
    from contexture import hermes

    probe = hermes.Engine()
    probe._host()
    script = (
        "import contexture, sys\n"
        "host = contexture.Host(sys.argv[1], sys.argv[1] + '/hermes.yaml')\n"
        "session = host.session('plain', 'm', 64000)\n"
        "print('open', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(home / "contexture")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout and holder.stdout.readline() == "open\n"
    result = plain(home, model)
    assert holder.stdin
    holder.stdin.close()
    holder.wait()
    return {**result, "own": f"plain~{os.getpid()}"}


def failing(home: Path, model: Model) -> dict[str, Any]:
    """The engine's store cannot be opened: the built-in of Contexture's stands in, or nothing is compacted."""
    in_place(home)
    store = home / "contexture" / "engines"
    store.parent.mkdir()
    store.write_text("no folder")
    place = Place(home, model)
    agent = place.agent("plain")
    is_ours(agent)
    asked = [question(at) for at in range(12)]
    place.play(agent, asked)
    return {"asked": asked, "compactions": agent.context_compressor.compression_count}


def two(home: Path, model: Model) -> dict[str, Any]:
    """Two agents at once, each with a conversation of its own."""
    in_place(home)
    place = Place(home, model)
    asked = {name: [f"{name} " + question(at) for at in range(14)] for name in ("plain", "other")}
    errors: list[BaseException] = []
    count: list[int] = []

    def run(name: str) -> None:
        try:
            agent = place.agent(name)
            history = place.play(agent, asked[name])
            count.append(agent.context_compressor.compression_count)
            agent.shutdown_memory_provider(history)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return {"asked": asked["plain"], "other": asked["other"], "compactions": min(count)}


def fork(home: Path, model: Model) -> dict[str, Any]:
    """A background review has its parent's id and says things that nobody said."""
    from agent import background_review

    in_place(home)
    place = Place(home, model)
    agent = place.agent("plain")
    asked = [question(at) for at in range(12)]
    history = place.play(agent, asked[:4])
    before = len(model.requests)
    review = getattr(background_review, "_run_review_in_thread")
    thread = threading.Thread(target=review, args=(agent, list(history), "REVIEW: what is worth keeping?"))
    thread.start()
    thread.join()
    reviewed = len(model.requests) - before
    history = place.play(agent, asked[4:], history)
    agent.shutdown_memory_provider(history)
    return {"asked": asked, "reviewed": reviewed, "compactions": agent.context_compressor.compression_count}


def main() -> None:
    case, home = sys.argv[1], Path(sys.argv[2])
    os.environ["HERMES_HOME"] = str(home)
    big = home / "big.txt"
    big.write_text("\n".join(f"line {at} of a long file with some words in it" for at in range(400)))
    os.environ["BIG_FILE"] = str(big)
    os.chdir(home)
    model = Model()
    result = globals()[case](home, model)
    result.update(refused=model.refused, requests=len(model.requests))
    result["answered"] = len([1 for request in model.requests if request])
    print("\nRESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
