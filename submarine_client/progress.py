"""Show the progress of apps while waiting: redrawn on a terminal, else printed line by line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from submarine_client.colours import has_colours, with_colours
from submarine_client.show import end_line, progress_line
from submarine_client.terminal import Terminal
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb

_BAR_WIDTH = 20

LINE_EVERY_S = 5.0
"""Minimum seconds between two lines of an app whose state has not changed."""


class Progress(Protocol):
    """Shows the progress of apps."""

    def update(self, apps: Sequence[pb.AppStatus]) -> None:
        """Show the apps as they are now. An ended app is shown for the last time."""
        ...

    def note(self, text: str) -> None:
        """Print a note about the wait itself."""
        ...

    def close(self) -> None:
        """Stop showing progress. Further calls do nothing."""
        ...


def progress_on(terminal: Terminal, now_s: Callable[[], float]) -> Progress:
    """Return the progress display that suits the terminal. `now_s` returns the time in seconds."""
    return LiveProgress(terminal) if terminal.live else LineProgress(terminal, now_s)


class LineProgress:
    """Prints a line for an app if its state or phase changes, otherwise at most every LINE_EVERY_S seconds."""

    def __init__(self, terminal: Terminal, now_s: Callable[[], float]) -> None:
        self._terminal = terminal
        self._now_s = now_s
        self._shown: dict[str, tuple[tuple[str, int], float, str]] = {}
        self._ended: set[str] = set()

    def update(self, apps: Sequence[pb.AppStatus]) -> None:
        """Print a line for each app that changed."""
        for app in apps:
            if status.has_ended(app):
                self._end(app)
            else:
                self._go_on(app)

    def note(self, text: str) -> None:
        """Print a line."""
        self._terminal.note(text)

    def close(self) -> None:
        """Do nothing: lines stay as they are."""

    def _end(self, app: pb.AppStatus) -> None:
        if app.app_id not in self._ended:
            self._ended.add(app.app_id)
            self._terminal.show(end_line(app))

    def _go_on(self, app: pb.AppStatus) -> None:
        stage, line, now_s = (app.state, app.phase), progress_line(app), self._now_s()
        last = self._shown.get(app.app_id)
        if last is not None and last[0] == stage and (now_s - last[1] < LINE_EVERY_S or last[2] == line):
            return
        self._shown[app.app_id] = (stage, now_s, line)
        self._terminal.note(line)


class LiveProgress:
    """A bar and a line per app, redrawn in place, and removed once every app has ended."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live = Live(console=Console(file=terminal.err), auto_refresh=False, transient=True, redirect_stdout=False)
        self._ended: dict[str, str] = {}

    def update(self, apps: Sequence[pb.AppStatus]) -> None:
        """Redraw."""
        self._live.start()
        running = [app for app in apps if not status.has_ended(app)]
        lines = Table.grid(padding=(0, 1))
        lines.add_column(width=_BAR_WIDTH)
        lines.add_column(overflow="ellipsis", no_wrap=True)
        for app in running:
            text = progress_line(app)
            lines.add_row(
                ProgressBar(total=1.0, completed=0.0 if math.isnan(app.progress) else app.progress, width=_BAR_WIDTH),
                Text.from_ansi(with_colours(text) if has_colours(self._terminal.err) else text),
            )
        self._live.update(lines, refresh=True)
        for app in apps:
            if status.has_ended(app) and app.app_id not in self._ended:
                self._ended[app.app_id] = end_line(app)
        if not running:
            self.close()

    def note(self, text: str) -> None:
        """Print a line above the redrawn lines."""
        self._live.console.print(Text(f"submarine: {text}"))

    def close(self) -> None:
        """Erase the redrawn lines, then print how the apps ended."""
        self._live.stop()
        while self._ended:
            self._terminal.show(self._ended.pop(next(iter(self._ended))))
