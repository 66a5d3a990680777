"""Commands and values that reach a process in a YARN container letter by letter.

A NodeManager writes a shell script with the lines `export NAME="VALUE"` and `exec bash -c "COMMAND"`. It escapes
nothing: a `"`, `$`, backquote or backslash inside is the shell's, and the command is read by two shells, one after the
other. Before that it replaces `<LOG_DIR>`, `<CPS>` and `{{NAME}}` (Hadoop's `ContainerLaunch`, `ApplicationConstants`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from themis.errors import InputError

_SPECIAL = re.compile(r'([\\"$`])')
# What YARN would replace, cut in two by an empty pair of quotes; every such text stands in single quotes at that point.
_PLACEHOLDER = re.compile(r"\{(?=\{)|\}(?=\})|<(?=LOG_DIR>|CPS>)")


def command_line(arguments: Iterable[str], *, stdout: str = "stdout", stderr: str = "stderr") -> str:
    """A shell line for `ProcessLaunch.commands` that becomes exactly this program with these arguments.

    The program replaces the shell, so that a signal to the container's process is one to it.

    Args:
        arguments: The program and its arguments. Nothing in them is expanded.
        stdout: Where output goes: a file's name in the container's log folder.
        stderr: Likewise.
    """
    inner = " ".join(_word(argument) for argument in arguments)
    return f"{_within_double_quotes('exec ' + inner)} 1><LOG_DIR>/{stdout} 2><LOG_DIR>/{stderr}"


def environment_value(value: str) -> str:
    """A value as it must be written in a launch context's environment, to be taken letter by letter."""
    escaped = _within_double_quotes(_checked(value))
    # Within double quotes no quotes can part a placeholder. An argument can that the node's script does not have.
    return _PLACEHOLDER.sub(lambda match: match[0] + "$9", escaped)


def _word(argument: str) -> str:
    return _PLACEHOLDER.sub(lambda match: match[0] + "''", shlex.quote(_checked(argument)))


def _within_double_quotes(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _checked(text: str) -> str:
    if "\0" in text:
        raise InputError("a process's arguments and environment cannot hold a NUL character", value=text)
    return text
