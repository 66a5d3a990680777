"""The display during a run: a table that is redrawn on a terminal, otherwise a line at times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from submarine_client.table import percent
from themis.values import Value
from themis.wire import themis_pb2 as pb
from themis.wire.app_status import has_ended, rho
from themis.wire.values import cluster_from_message

PLAIN_EVERY_S = 5.0
_RUNNING_STATES = ("STARTING", "RUNNING", "CHECKPOINTING")
_DONE_STATES = ("FINISHED", "STOPPED")


class Snapshot(Value, frozen=True, kw_only=True):
    """The state of a run at one moment: `elapsed_s` since its start, `expected` apps in total."""

    elapsed_s: float
    apps: Sequence[pb.AppStatus]
    cluster: pb.ClusterStatus
    expected: int
    processes: int


class Display:
    """Shows snapshots. It is a context manager that restores the terminal at its end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._next_plain_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""
        if self._live is not None:
            self._live.update(Group(Text(headline(snapshot)), table(snapshot)))
        elif snapshot.elapsed_s >= self._next_plain_s:
            self._next_plain_s = snapshot.elapsed_s + PLAIN_EVERY_S
            self._console.print(plain_line(snapshot), markup=False, highlight=False, soft_wrap=True)


def headline(snapshot: Snapshot) -> str:
    """The cluster in one line."""
    ended = sum(has_ended(app) for app in snapshot.apps)
    cluster = snapshot.cluster
    return (
        f"{snapshot.elapsed_s:5.0f} s  {cluster.gpus_leased} of {cluster.gpus} {_devices(snapshot)} leased  "
        f"round {cluster.rounds}  "
        f"apps {ended} ended, {len(snapshot.apps) - ended} active, {snapshot.expected - len(snapshot.apps)} to come  "
        f"{snapshot.processes} processes"
    )


def _devices(snapshot: Snapshot) -> str:
    return f"{cluster_from_message(snapshot.cluster.cluster).device_noun}s"


def plain_line(snapshot: Snapshot) -> str:
    """The cluster and every active app in one line."""
    active = [app for app in snapshot.apps if not has_ended(app)]
    parts = [f"{app.name} {app.gpus} {_devices(snapshot)} {100 * app.progress:.0f}%" for app in active]
    return " | ".join([headline(snapshot), *parts])


def table(snapshot: Snapshot) -> Table:
    """A row per app."""
    shown = Table(box=None, pad_edge=False)
    for heading in ("app", "kind", "state", "phase"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("jobs run", "done", _devices(snapshot), "rho", "progress"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for app in snapshot.apps:
        shown.add_row(*_cells(app), style="dim" if has_ended(app) else "")
    return shown


def _cells(app: pb.AppStatus) -> tuple[str, ...]:
    states = Counter(job.state for job in app.jobs)
    fairness = rho(app)
    return (
        app.name,
        kind_of(app),
        app.state,
        f"{app.phase + 1}/{app.phases}" if app.phases else "-",
        str(sum(states[state] for state in _RUNNING_STATES)),
        f"{sum(states[state] for state in _DONE_STATES)}/{len(app.jobs)}",
        str(app.gpus),
        "-" if math.isnan(fairness) else f"{fairness:.2f}",
        percent(app.progress),
    )


def kind_of(app: pb.AppStatus) -> str:
    """Whether an app trains or is replayed."""
    return "replay" if app.replay else "real"
