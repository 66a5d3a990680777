"""`list`: which apps it shows, in which order, and in which columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from submarine_client.connection import Connection, Listing
from submarine_client.show import waiting_text
from submarine_client.table import MISSING, age, moment, percent, shortened, table
from submarine_client.terminal import UNLIMITED, harmless
from themis.lifecycle import WAITING, AppState
from themis.rho import HEADLINE, rho_text
from themis.values import Value
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb

NEWEST = "newest"
_ORDERS: dict[str, Callable[[pb.AppStatus], Any]] = {
    "name": lambda app: app.name,
    "user": lambda app: app.user,
    "state": status.shown_state,
    "gpus": lambda app: -app.gpus,
    # What is unknown is NaN and comes last.
    "rho": lambda app: -max(0.0, app.rho),
    "progress": lambda app: -max(0.0, app.progress),
}
ORDERS = (NEWEST, *_ORDERS)
"""The keys to sort a list by. Numbers are in descending order; ties keep the newest app first."""

STATES = (*(state.value for state in AppState), WAITING)
"""The states that `--state` knows: those of the lifecycle, and an app master that runs without a GPU."""

_NARROWEST_NAME = 8
_WIDEST_USER = 12


class Selection(Value, frozen=True, kw_only=True):
    """Which apps a list shows: of these states and users (none: all), at most `limit` of them (0: all)."""

    states: Sequence[str] = ()
    users: Sequence[str] = ()
    tuner: str = ""
    sort: str = NEWEST
    limit: int = 0


def select(client: Connection, selection: Selection, *, reasons: bool = False) -> Listing:
    """Fetch the selected apps in their order.

    By `newest`, a limit keeps the apps that have not ended, then the newest of the others. By another order it keeps
    the first ones, for which all apps have to be fetched. With `reasons`, one's own apps say why they wait.
    """
    limit = selection.limit or None
    states = {each for state in selection.states for each in (status.WAITING_STATES if state == WAITING else (state,))}
    found = client.first(
        sorted(states),
        most=limit if selection.sort == NEWEST else None,
        wanted=lambda app: _wanted(app, selection),
        reasons=reasons,
    )
    newest_first = found.apps[::-1]
    ordered = newest_first if selection.sort == NEWEST else sorted(newest_first, key=_ORDERS[selection.sort])
    shown = tuple(ordered[:limit])
    return replace(found, apps=shown, more=found.more + len(ordered) - len(shown))


def _wanted(app: pb.AppStatus, selection: Selection) -> bool:
    return (
        (not selection.states or status.shown_state(app) in selection.states)
        and (not selection.users or app.user in selection.users)
        and (not selection.tuner or bool(app.tuner == selection.tuner))
    )


def list_text(apps: Sequence[pb.AppStatus], now_s: float, width: int) -> str:
    """Format a table with a line per app to fit `width` columns, by shorter names as far as that helps."""
    rows = [
        (
            *(app.app_id, harmless(app.name), shortened(harmless(app.user), _WIDEST_USER), status.shown_state(app)),
            *(age(now_s - app.submitted_at_s), percent(app.progress), str(app.gpus), rho_text(status.rho(app))),
        )
        for app in apps
    ]
    header = ("APP", "NAME", "USER", "STATE", "AGE", "DONE", "GPUS", "RHO")
    excess = max(map(len, table(header, rows).splitlines())) - width
    if excess > 0:
        room = max(_NARROWEST_NAME, max(len(row[1]) for row in rows) - excess)
        rows = [(row[0], shortened(row[1], room), *row[2:]) for row in rows]
    return table(header, rows, width)


def wide_text(apps: Sequence[pb.AppStatus], width: int = UNLIMITED) -> str:
    """Format a table with every column to fit `width` columns, by several lines per app if need be."""
    rho = f"RHO ({HEADLINE.upper()})"
    header = ("APP", "NAME", "USER", "QUEUE", "STATE", "DONE", "GPUS", rho, "TUNER", "SUBMITTED_AT", "ENDED", "WAITS")
    rows = [
        (
            *(app.app_id, app.name, app.user, app.queue, status.shown_state(app), percent(app.progress), str(app.gpus)),
            *(rho_text(status.rho(app)), app.tuner, moment(app.submitted_at_s), moment(app.finished_at_s)),
            waiting_text(app) or MISSING,
        )
        for app in apps
    ]
    return table(header, rows, width)
