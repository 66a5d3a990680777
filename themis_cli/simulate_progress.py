"""Progress of simulated runs on standard error: a line that is redrawn, or without a terminal a line at times."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from themis_lab.simulator.simulation import Simulation

_PRINTED_EVERY_S = 10.0
_DRAWN_EVERY_S = 0.1
_CELLS = 30
_CLEAR = "\x1b[K"


class Progress:
    """Show the progress of runs. Use it as a context manager; leaving it clears the line."""

    def __init__(self, runs: int, name: str = "simulate") -> None:
        self._name = name
        self._runs = runs
        self._made = 0
        self._live = sys.stderr.isatty()
        self._printed_s = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            sys.stderr.write(f"\r{_CLEAR}")
            sys.stderr.flush()

    def run_made(self, made: int, _: int) -> None:
        """Note that `made` runs are finished."""
        self._made = made

    def watch(self, run: Simulation) -> None:
        """Note that a run has finished a round."""
        if not self._due():
            return
        ended, apps = len(run.ended), len(run.workload.apps)
        of_runs = f"run {self._made + 1} of {self._runs}: " if self._runs > 1 else ""
        line = f"{of_runs}{ended} of {apps} apps, {run.counts.rounds} rounds, {span(run.now_s)}"
        self._print((self._made + ended / apps) / self._runs, line)

    def watch_apart(self, ended: int, apps: int) -> None:
        """Note that `ended` apps of all runs have ended, in worker processes."""
        self._print(ended / apps, f"{self._made} of {self._runs} runs, {ended} of {apps} apps")

    def _due(self) -> bool:
        return time.monotonic() - self._printed_s >= (_DRAWN_EVERY_S if self._live else _PRINTED_EVERY_S)

    def _print(self, share: float, line: str) -> None:
        if not self._due():
            return
        self._printed_s = time.monotonic()
        full = round(share * _CELLS)
        bar = f"[{'#' * full}{'.' * (_CELLS - full)}] "
        sys.stderr.write(f"\r{self._name} {bar}{line}{_CLEAR}" if self._live else f"{self._name}: {line}\n")
        sys.stderr.flush()


def span(seconds: float) -> str:
    """Virtual time for readers: 2 d 03:04:05."""
    days, rest = divmod(int(seconds), 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock
