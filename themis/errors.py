"""One root error for the whole product: what went wrong, with which value, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


MAX_SHOWN_CHARS = 200
"""Characters of a value that an error shows."""


def shortened(text: str) -> str:
    """Return the beginning of a long text, with the number of its characters."""
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}.. ({len(text)} characters)"


class ThemisError(Exception):
    """Root of every error that Themis raises on purpose.

    Args:
        what: What went wrong, one clause, no final period.
        value: The offending value; shown with `repr`, shortened, unless it is None.
        remedy: What the reader can do about it.
    """

    exit_code = 1

    def __init__(self, what: str, *, value: object = None, remedy: str = "") -> None:
        self.what = what
        self.value = value
        self.remedy = remedy
        super().__init__(what, value, remedy)

    def __str__(self) -> str:
        shown = "" if self.value is None else f": {shortened(repr(self.value))}"
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.what}{shown}{remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        # An error of the auction's worker process must reach its parent; by default keyword arguments prevent that,
        # and an error that cannot be unpickled breaks the whole pool.
        return _restored, (type(self), self.args, dict(vars(self)))


def _restored(kind: type[ThemisError], arguments: tuple[object, ...], state: dict[str, object]) -> ThemisError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class InputError(ThemisError, ValueError):
    """The user gave something that cannot be used: a file, a flag, a value."""

    exit_code = 2


NAMES_SHOWN = 50
"""If more names are known, an error shows only the few that are most similar."""


class UnknownNameError(InputError):
    """A name that is not known. The message names the nearest one, or all if they are at most `most`, else a few."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, most: int = NAMES_SHOWN) -> None:
        choices = sorted(known)
        near = nearest(name, choices)
        remedy = f"did you mean {near!r}?" if near else "known: " + (_listed(name, choices, most) or "none")
        super().__init__(f"unknown {kind}", value=name, remedy=remedy)


class MissingHereError(InputError):
    """Something that this machine lacks and another may have: a package, an entry of a configuration."""


class UnknownHereError(UnknownNameError, MissingHereError):
    """A name that packages of this machine do not know, and those of another may."""


class NotAllowedError(InputError):
    """The caller is known, but may not do this."""


MAX_ERRORS = 20
"""Errors that are shown at once."""


class CombinedError(InputError):
    """Several errors of one input, a line for each, at most `MAX_ERRORS`."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        self.errors = errors
        lines = [str(error) for error in errors[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            lines.append(f"and {len(errors) - MAX_ERRORS} more errors")
        super().__init__("\n".join(lines))


class FoundErrors:
    """Collects the errors of an input, so that its author sees them all at once.

    Each is shown once: a check that reads a part with an error may raise the part's error again.
    """

    def __init__(self) -> None:
        self._errors: dict[str, InputError] = {}

    def add(self, error: InputError) -> None:
        """Keep an error, or each one of several."""
        for each in error.errors if isinstance(error, CombinedError) else (error,):
            self._errors.setdefault(str(each), each)

    def run(self, check: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T | None:
        """Return what a check returns. If it raises InputError, keep the error and return None."""
        try:
            return check(*arguments, **more)
        except InputError as error:
            self.add(error)
            return None

    def raise_all(self) -> None:
        """Raise an InputError with everything that was found, unless nothing was."""
        found = list(self._errors.values())
        if found:
            raise found[0] if len(found) == 1 else CombinedError(found)


class UnreachableError(ThemisError, ConnectionError):
    """A service does not answer."""

    exit_code = 2


class InvariantError(ThemisError, AssertionError):
    """A state that must never occur did occur: a defect of ours, not of the user."""


def _listed(name: str, known: Sequence[str], most: int) -> str:
    if len(known) <= most:
        return ", ".join(known)
    few = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
    return ", ".join(few) + f" and {len(known) - len(few)} more"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, or None when none is close.

    Dashes at the beginning do not count: they are no part of an option's name, and would make `--foo` look like `--f`.
    """
    bare = {each.lstrip("-"): each for each in known}
    matches = difflib.get_close_matches(name.lstrip("-"), list(bare), n=1, cutoff=0.6)
    return bare[matches[0]] if matches else None
