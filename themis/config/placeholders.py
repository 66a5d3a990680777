"""Placeholders of a user's own command: `%name%` stands for the value of that name, and `%%` before a letter for `%`.

Example: `date +%%Y%%m%%d > %checkpoint_path%/day` runs `date +%Y%m%d`. The shell's own `${file%%.*}` stays as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from themis.errors import FoundErrors, UnknownNameError

GIVEN_BY_APP_MASTER: Mapping[str, str] = {
    "iterations": "job.iterations",
    "checkpoint_every": "checkpoint_every",
    "checkpoint_path": "checkpoint_uri",
    "checkpoint_uri": "checkpoint_uri",
    "keep_checkpoints": "keep_checkpoints",
    "seed": "seed",
}
"""Names with a value in every job that are no parameters, and the key of the group file that each comes from."""

CHECKPOINT_PATH_VARIABLE = "SUBMARINE_CHECKPOINT_PATH"
"""Of a job that Submarine's command line submits: the environment variable with the folder of its checkpoints."""

_PLACEHOLDER = re.compile(
    r"(?P<expansion>\$\{[A-Za-z0-9_@*]+(?:\[[^\]]{0,200}\])?%%)|(?P<doubled>%%(?=[A-Za-z_]))|%(?P<name>[A-Za-z_][A-Za-z0-9_]*)%"
)


def placeholders(command: str) -> Counter[str]:
    """The names between percent signs, in order of their first use, and how often each is there."""
    return Counter(match["name"] for match in _PLACEHOLDER.finditer(command) if match["name"])


def substitute(command: str, values: Mapping[str, object], *, doubled: str = "%") -> str:
    """The command with each known placeholder replaced by its value as text; unknown ones stay as they are.

    Args:
        command: The command.
        values: The values by name.
        doubled: What `%%` before a letter becomes; `%%` if the command will be filled in once more.
    """

    def text(match: re.Match[str]) -> str:
        if match["doubled"]:
            return doubled
        return str(values.get(match["name"], match[0]))

    return _PLACEHOLDER.sub(text, command)


def check_placeholders(command: str, known: Iterable[str], source: str) -> None:
    """Check that every placeholder stands for something.

    Raises:
        InputError: One does not. A single letter is let through: `date +%H%M` is no placeholder.
    """
    names, found = set(known), FoundErrors()
    for name in placeholders(command):
        if len(name) > 1 and name not in names:
            error = UnknownNameError(f"placeholder in the command of {source}", name, names)
            error.remedy += f"; %%{name}% for the text %{name}%"
            found.add(error)
    found.raise_all()
