"""How many processes a run has and how much memory they take, sampled while it goes on."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from themis.processes import find_marked
from themis_lab.testbed.reaper import RUN_MARK

_PSS_EVERY = 5
"""Samples for each one of PSS, for which the kernel walks every process's pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPeaks:
    """The largest values seen.

    Attributes:
        count: Processes at once.
        rss_bytes: Sum of resident memory; pages that processes share count once for each of them.
        pss_bytes: Sum of proportional memory, shared pages divided among their users: what the run really takes.
            Sampled more rarely; 0 when never.
        samples: How often was looked.
    """

    count: int = 0
    rss_bytes: int = 0
    pss_bytes: int = 0
    samples: int = 0


class ProcessSampler:
    """Looks at all processes that carry a run's mark."""

    def __init__(self, run_id: str) -> None:
        self._marks = {RUN_MARK: run_id}
        self.peaks = ProcessPeaks()
        self.newest_count = 0

    def sample(self) -> None:
        """Look once."""
        with_pss = self.peaks.samples % _PSS_EVERY == 0
        sizes = [_memory(pid, with_pss=with_pss) for pid in find_marked(self._marks)]
        self.newest_count = len(sizes)
        self.peaks = ProcessPeaks(
            count=max(self.peaks.count, len(sizes)),
            rss_bytes=max(self.peaks.rss_bytes, sum(rss for rss, _ in sizes)),
            pss_bytes=max(self.peaks.pss_bytes, sum(pss for _, pss in sizes)),
            samples=self.peaks.samples + 1,
        )


def _memory(pid: int, *, with_pss: bool) -> tuple[int, int]:
    """Resident and proportional bytes; zeros for a process that has just ended."""
    try:
        process = psutil.Process(pid)
        if with_pss:
            info = process.memory_full_info()
            return info.rss, info.pss
        return process.memory_info().rss, 0
    except (psutil.Error, OSError):
        return 0, 0
