"""How Themis starts Python programs of its own, whatever lies in the folder that they work in."""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: str, python: str = sys.executable) -> tuple[str, ...]:
    """The command that runs an installed module, e.g. `(python, "-P", "-m", "am.main")`.

    `python -m` alone searches the working folder before the installed packages. That folder may be another checkout of
    Themis, or contain a user's own `am/` or `random.py`. `-P` leaves it out. The environment variable PYTHONSAFEPATH
    would do the same. But users' programs would inherit it, and may import files in their own folder.

    Args:
        module: Its full name.
        arguments: What the program is given.
        python: The interpreter, where it is not this process's.
    """
    return (python, "-P", "-m", module, *arguments)
