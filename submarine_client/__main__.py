"""Start `submarine`, the command of users; `python -m submarine_client` does the same."""

import sys

from themis.interruption import ended_by_ctrl_c


def main() -> int:
    """Import the command and run it. Returns its exit code."""
    with ended_by_ctrl_c():
        from submarine_client.main import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
