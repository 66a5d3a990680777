"""Rows of a trace that cannot be read: the first one ends the reading, or all are left out, counted and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from themis.errors import InputError

Row = TypeVar("Row")
Made = TypeVar("Made")

NAMED = 5
"""Rows that are named; of more rows only the number is given."""


class BadRows:
    """Reads rows one by one.

    Args:
        skip: Whether rows that cannot be read are left out. Otherwise the first one raises its error.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self._skip = skip
        self._errors: list[InputError] = []

    def read(self, rows: Iterable[Row], make: Callable[[Row], Made]) -> list[Made]:
        """Return what `make` makes of the rows. Raises its InputError, unless such rows are left out."""
        made = []
        for row in rows:
            try:
                made.append(make(row))
            except InputError as error:
                if not self._skip:
                    remedy = "; ".join(filter(None, (error.remedy, "--skip-bad-rows leaves such rows out")))
                    raise InputError(error.what, value=error.value, remedy=remedy) from None
                self._errors.append(error)
        return made

    @property
    def gaps(self) -> str:
        """The rows that were left out, as in a Workload; empty if there are none."""
        if not self._errors:
            return ""
        named = [str(InputError(error.what, value=error.value)) for error in self._errors[:NAMED]]
        more = len(self._errors) - len(named)
        named += [f"and {more} more"] * bool(more)
        rows = "1 row" if len(self._errors) == 1 else f"{len(self._errors)} rows"
        return f"{rows} cannot be read: left out ({', '.join(named)})"
