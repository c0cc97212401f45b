"""The command line: ``python -m contexture``, and the script ``contexture``."""

import os
import signal
import sys

from ._native import main as run


def main() -> int:
    """Runs the command that the program's arguments name, and answers its exit code."""
    # The command handles Ctrl-C itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    started_by = os.path.abspath(sys.argv[0])
    # `python -m contexture` is this file, which Python runs by its name alone.
    command = [sys.executable, "-m", "contexture"] if started_by == os.path.abspath(__file__) else [started_by]
    return run(command, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
