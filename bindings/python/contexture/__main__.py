"""The command line: ``python -m contexture``, and the script ``contexture``."""

import signal
import sys

from ._native import main as run


def main() -> int:
    """Runs the command that the program's arguments name, and answers its exit code."""
    # The command handles Ctrl-C itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
