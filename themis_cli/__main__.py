"""Start `themis`, the command of operators and experimenters; `python -m themis_cli` does the same."""

import sys

from themis.interruption import ended_by_ctrl_c


def main() -> int:
    """Import the command and run it. Returns its exit code."""
    with ended_by_ctrl_c():
        from themis_cli.main import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
