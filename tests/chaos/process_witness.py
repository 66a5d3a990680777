"""What the process table shows of a run, by /proc alone: which process had which GPUs, and when.

A thread looks at the table several times a second. The environment of each process tells whose it is, and its start
time comes from the kernel, so an overlap of two processes is seen even if no look falls into it: the later process
started before the earlier one was last seen. The kernel rounds starts down to a tick, and a look takes time, so a
process counts as seen from the begin of the look, and an overlap of less than a tick is none.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.05
EXEC_S = 2.0
"""A process that is younger may still be amid `exec`, when its environment reads as empty."""


def now_s() -> float:
    """Seconds since the boot of the machine, as start times in /proc: no step of the wall clock moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Seen:
    """A process of the run.

    Attributes:
        owner: Its app, and for a task its job, incarnation and index.
        gpus: The cards in its environment. Empty for an app master.
    """

    pid: int
    started_s: float
    owner: tuple[str, ...]
    gpus: frozenset[str]
    last_seen_s: float
    orphan_since_s: float = 0.0

    @property
    def is_task(self) -> bool:
        return len(self.owner) > 1


@dataclass(slots=True)
class ProcessWitness:
    """Watches the processes that carry a run's mark, from `start` to `stop`."""

    run_id: str
    seen: list[Seen] = field(default_factory=list)
    _living: dict[tuple[int, int], Seen] = field(default_factory=dict)
    _others: set[tuple[int, int]] = field(default_factory=set)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def living(self) -> list[Seen]:
        """The run's processes now, by their start."""
        with self._turn:
            self._look()
            return sorted(self._living.values(), key=lambda each: (each.started_s, each.pid))

    def tasks(self) -> list[Seen]:
        return [each for each in self.living() if each.is_task]

    def masters(self) -> list[Seen]:
        return [each for each in self.living() if not each.is_task]

    def ran_in_last_attempt(self, app_id: str) -> bool:
        """Whether a task of the app started after its last app master."""
        processes = [each for each in self.seen if each.owner[0] == app_id]
        last_s = max((each.started_s for each in processes if not each.is_task), default=math.inf)
        return any(each.is_task and each.started_s > last_s for each in processes)

    def double_uses(self, masters_overlap_s: float = 0.0) -> list[str]:
        """GPUs that two processes of different owners had at once, and apps that had two app masters at once.

        Args:
            masters_overlap_s: How long an app master may live beside the next one.
        """
        users: dict[str, list[Seen]] = defaultdict(list)
        for each in self.seen:
            for gpu in each.gpus:
                users[f"GPU {gpu}"].append(each)
            if not each.is_task:
                users[f"the place of {each.owner[0]}'s app master"].append(each)
        found = []
        for what, processes in users.items():
            processes.sort(key=lambda each: (each.started_s, each.pid))
            for place, later in enumerate(processes):
                found += [
                    f"{what}: {earlier.owner} (pid {earlier.pid}) lived at least until {earlier.last_seen_s:.2f},"
                    f" {later.owner} (pid {later.pid}) started at {later.started_s:.2f}"
                    for earlier in processes[:place]
                    if earlier.pid != later.pid
                    and later.started_s + 1 / TICKS + (masters_overlap_s if not later.is_task else 0.0)
                    < earlier.last_seen_s
                    and not (earlier.is_task and earlier.owner == later.owner)
                ]
        return found

    def orphans(self, longest_s: float) -> list[str]:
        """Tasks that lived on for `longest_s` after their app master."""
        return [
            f"{each.owner} (pid {each.pid}) for {each.last_seen_s - each.orphan_since_s:.1f} s"
            for each in self.seen
            if each.orphan_since_s and each.last_seen_s - each.orphan_since_s > longest_s
        ]

    def _watch(self) -> None:
        while not self._end.wait(LOOK_S):
            with self._turn:
                self._look()

    def _look(self) -> None:
        present = set()
        looked_s = now_s()
        for pid, started, parent in _table():
            key = (pid, started)
            present.add(key)
            if key in self._others:
                continue
            process = self._seen_as(key, parent)
            if process is not None:
                process.last_seen_s = looked_s
                if process.is_task and parent == 1:
                    process.orphan_since_s = process.orphan_since_s or looked_s
        self._others &= present
        for key in self._living.keys() - present:
            del self._living[key]

    def _seen_as(self, key: tuple[int, int], parent: int) -> Seen | None:
        """The record of a process of the run, or None. A killed process counts until its memory is gone."""
        pid, started = key
        started_s = started / TICKS
        environment = _environment(pid)
        known = self._living.get(key)
        owner = self._owner(environment)
        if known is not None:
            return known if owner == known.owner else None
        if not owner:
            if now_s() - started_s > EXEC_S:
                self._others.add(key)
            return None
        if len(owner) == 1 and (not _is_master(pid) or any(each.pid == parent for each in self._living.values())):
            # A shell or task host in a container. Or a task that its app master has forked, and that has the app
            # master's environment until `exec`.
            return None
        cards = environment.get("CUDA_VISIBLE_DEVICES", "") if len(owner) > 1 else ""
        # Cards count from 0 on each node of YARN.
        node = f"{environment['NM_HOST']}/" if "NM_HOST" in environment else ""
        gpus = frozenset(node + card for card in cards.split(",") if card)
        process = Seen(pid, started_s, owner, gpus, started_s)
        self._living[key] = process
        self.seen.append(process)
        return process

    def _owner(self, environment: dict[str, str]) -> tuple[str, ...]:
        if environment.get("THEMIS_RUN_ID") != self.run_id or "THEMIS_APP_ID" not in environment:
            return ()
        names = ("THEMIS_APP_ID", "THEMIS_JOB_ID", "THEMIS_INCARNATION", "THEMIS_TASK_INDEX")
        return tuple(environment[name] for name in names if name in environment)


def _table() -> Iterator[tuple[int, int, int]]:
    """Id, start in ticks since the boot, and parent of every process that is no zombie."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - many times a second
        if not name.isdigit():
            continue
        try:
            status = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if status[0] not in (b"Z", b"X"):
            yield int(name), int(status[19]), int(status[1])


def _is_master(pid: int) -> bool:
    try:
        return b"am.main" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _environment(pid: int) -> dict[str, str]:
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in content.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
