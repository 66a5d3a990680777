"""What apps, their users, queues and parameters may be called, and who the user is when nothing says so."""

from __future__ import annotations

import getpass
import re

from themis.errors import InputError

_APP_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_APP_ID = re.compile(r"app-[0-9]+")
_PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ACCOUNT_NAME = re.compile(r"\w[\w.@+\\-]*")
_MAX_LABEL_CHARS = 1_000


def check_app_name(name: str, source: str) -> str:
    """Return an app's name: up to 63 of a-z, 0-9 and '-', since it becomes part of folder and container names.

    Args:
        name: The name.
        source: Where it was given, for errors.

    Raises:
        InputError: The name is empty, too long, or holds anything else, or it looks like the id of an app, which
            it would hide from commands.
    """
    if not _APP_NAME.fullmatch(name):
        raise InputError(
            f"{source}: a name is up to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit", value=name
        )
    if _APP_ID.fullmatch(name):
        remedy = f"add a word, for example: {name}-search"
        raise InputError(f"{source}: a name must not look like the id of an app", value=name, remedy=remedy)
    return name


def check_job_id(job_id: str) -> str:
    """Return the id of a job: what can name a folder and be shown.

    Raises:
        InputError: The id is empty or too long, begins with a dot, or holds a '/' or a character without a shape.
    """
    if not 0 < len(job_id) <= 200 or job_id.startswith(".") or "/" in job_id or not job_id.isprintable():
        remedy = "use 1 to 200 characters that can be shown, no '/', no leading '.'"
        raise InputError("unusable job id", value=job_id, remedy=remedy)
    return job_id


def check_parameter_name(name: str, source: str) -> str:
    """Return the name of a hyper-parameter or argument: an identifier, since it becomes a flag of the program.

    Args:
        name: The name.
        source: Where it was given, for errors.

    Raises:
        InputError: The name is no identifier.
    """
    if not _PARAMETER_NAME.fullmatch(name):
        raise InputError(f"{source}: a parameter's name is letters, digits and '_', no digit first", value=name)
    return name


def check_label(label: str, key: str, source: str) -> str:
    """Return the name of a user or queue, or a reason: characters that can be shown, since tables and logs show them.

    Args:
        label: The text.
        key: What it is, as the user gives it: `user`, `--queue`.
        source: Where it was given, for errors.

    Raises:
        InputError: The text is empty or longer than 1,000 characters, or holds a line break, an escape sequence or
            another character without a shape.
    """
    if len(label) > _MAX_LABEL_CHARS:
        raise InputError(f"{source}: {key} is too long", value=len(label), remedy=f"at most {_MAX_LABEL_CHARS}")
    if not label or not label.isprintable():
        remedy = "write letters, digits, signs and spaces, no line breaks or control characters"
        raise InputError(f"{source}: {key} is not text that can be shown", value=label, remedy=remedy)
    return label


def check_account_name(name: str, source: str) -> str:
    """Return the name of an account, as a machine or a directory gives it.

    Raises:
        InputError: The name is empty, too long, or holds a space or another character that accounts do not have.
    """
    check_label(name, "user", source)
    if not _ACCOUNT_NAME.fullmatch(name):
        remedy = "write the name of one account: letters, digits and _ . @ + - \\, the first a letter, a digit or _"
        raise InputError(f"{source}: this is no name of an account", value=name, remedy=remedy)
    return name


def check_queue_name(name: str, key: str, source: str) -> str:
    """Return the name of a queue: a label that begins with a letter, a digit or '_'.

    Any user may name a queue, and its name is in tables of usage: spreadsheets take `=1+1` there for a formula.

    Raises:
        InputError: The name cannot be shown, or begins with another character.
    """
    check_label(name, key, source)
    if not (name[0].isalnum() or name[0] == "_"):
        raise InputError(f"{source}: {key} does not begin with a letter, a digit or '_'", value=name)
    return name


def login_name() -> str:
    """Return the login name of this process's user, or `user` if the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container may run under a user id that no password file names.
        return "user"
