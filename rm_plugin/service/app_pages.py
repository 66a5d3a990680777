"""Lists of apps in pages: apps that have not ended before the others, the newest of each first.

A page ends with a mark, and the next page begins after it. An app that ends between two pages moves towards the end, so
a reader may meet it twice but never misses it. Apps submitted after the first page are not in the later ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import islice

from rm_plugin.service.entries import AppEntry
from themis.errors import InputError
from themis.lifecycle import AppState
from themis.values import Value

MAX_APPS = 1000
"""The most apps of a page."""

_MARK = re.compile(r"(active|ended)-([0-9]{1,15})")


class AppPage(Value, frozen=True, kw_only=True):
    """Some apps in their order, and the mark after which the next page begins; empty in the last page."""

    entries: tuple[AppEntry, ...]
    next_mark: str


def app_page(
    entries: Iterable[AppEntry], *, states: Collection[AppState] = (), after: str = "", limit: int = MAX_APPS
) -> AppPage:
    """Return the first apps after a mark, of some states or of all.

    Args:
        entries: Apps in the order of lists, as `AppEntries.newest_first` yields them.
        states: The states of the apps to return; empty for all.
        after: The mark of the page before; empty for the first page.
        limit: The most apps to return.

    Raises:
        InputError: `after` is not the mark of a page.

    Example: of apps 1 to 4, where 1 and 3 have ended, the order is 4, 2, 3, 1. The page of the first three has the mark
        `ended-3`, and the page after that mark holds app 1.
    """
    limit, begin = page_size(limit), mark_key(after)
    wanted = (entry for entry in entries if (not states or entry.state in states) and list_key(entry) > begin)
    found = list(islice(wanted, limit + 1))
    shown = tuple(found[:limit])
    return AppPage(entries=shown, next_mark=mark_of(shown[-1]) if len(found) > limit else "")


def page_size(limit: int) -> int:
    """Return how many apps a page holds at most if a client asks for `limit`; 0 stands for no wish."""
    return max(1, min(limit or MAX_APPS, MAX_APPS))


def mark_of(entry: AppEntry) -> str:
    """Return the mark of a page that ends with this app."""
    return f"{'ended' if entry.ended else 'active'}-{entry.number}"


def mark_key(mark: str) -> tuple[bool, float]:
    """Return the place of a mark in the order; an empty mark stands before all apps."""
    if not mark:
        return False, -float("inf")
    parts = _MARK.fullmatch(mark)
    if parts is None:
        raise InputError("not the mark of a page", value=mark[:50], remedy="leave it out to begin with the first page")
    return parts[1] == "ended", -int(parts[2])


def list_key(entry: AppEntry) -> tuple[bool, float]:
    """Return the place of an app in the order of lists."""
    return entry.ended, -entry.number
