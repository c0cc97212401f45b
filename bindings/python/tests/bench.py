"""What a turn costs through the package: ``python bindings/python/tests/bench.py``. Build with ``--release`` before."""

from __future__ import annotations

import resource
import statistics
import tempfile
import threading
import time

import contexture


def messages_of(count: int) -> list[dict[str, object]]:
    """A conversation of a kilobyte a message, with some of what needs an escape."""
    text = 'def part(number):\n    return f"part {number}"\n' * 22
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": f"{at}: {text}"} for at in range(count)]


def longest_wait(act: threading.Event) -> float:
    """The longest time that another thread had to wait for the interpreter."""
    longest, last = 0.0, time.perf_counter()
    while not act.is_set():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, last = max(longest, now - last - 0.0005), now
    return longest


def main() -> None:
    columns = ("idle turn", "of 20, worst", "compaction", "processor", "others wait")
    print(f"{'messages':>8}  " + "  ".join(f"{column:>12}" for column in columns) + f"  {'memory':>9}")
    for count in (52, 2_000, 10_000):
        with tempfile.TemporaryDirectory() as home:
            host = contexture.Host(home, offline=True)
            messages = messages_of(count)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with host.session("s", "gpt-4o", 10_000_000, engine="lcm") as session:
                session.turn(messages)
                times = []
                for _ in range(20):
                    began = time.perf_counter()
                    turn = session.turn(messages)
                    assert len(turn.messages) == count
                    times.append(time.perf_counter() - began)
                done = threading.Event()
                waits: list[float] = []
                other = threading.Thread(target=lambda: waits.append(longest_wait(done)))
                other.start()
                for _ in range(20):
                    session.turn(messages)
                done.set()
                other.join()
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
                session.set_model("gpt-4o", count * 100)
                began, processor = time.perf_counter(), time.process_time()
                session.turn(messages, compact="force")
                compacting, processor = time.perf_counter() - began, time.process_time() - processor
            figures = (statistics.median(times), max(times), compacting, processor, waits[0])
            print(f"{count:8,}  " + "  ".join(f"{figure * 1000:9.2f} ms" for figure in figures) + f"  {grown / 1024:6.0f} MB")


def agent() -> None:
    """A conversation that grows to some compactions in a window of 64,000 tokens, as an agent's does."""
    with tempfile.TemporaryDirectory() as home:
        times = []
        with contexture.Host(home, offline=True).session("s", "gpt-4o", 64_000, engine="lcm") as session:
            messages: list[dict[str, object]] = []
            for message in messages_of(2_000):
                messages.append(message)
                if message["role"] == "assistant":
                    continue
                began = time.perf_counter()
                turn = session.turn(messages)
                took = time.perf_counter() - began
                messages = turn.messages
                if (turn.report["compaction"] or {}).get("outcome") == "compacted":
                    times.append(took)
        figures = " to ".join(f"{figure * 1000:.2f} ms" for figure in (statistics.median(times), max(times)))
        print(f"{len(times)} compactions in a window of 64,000 tokens, median to worst: {figures}")


if __name__ == "__main__":
    main()
    agent()
