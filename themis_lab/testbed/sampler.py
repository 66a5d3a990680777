"""Sample the number of processes of a run and their memory."""

from __future__ import annotations

import psutil

from themis.processes import find_marked
from themis.values import Value
from themis_lab.testbed.reaper import RUN_MARK

_PSS_EVERY = 5
"""Number of samples per PSS sample: for PSS the kernel walks the pages of every process."""


class ProcessPeaks(Value, frozen=True, kw_only=True):
    """The largest values seen.

    Attributes:
        count: Number of processes at one time.
        rss_bytes: Sum of resident memory; shared pages count once per process.
        pss_bytes: Sum of proportional memory: shared pages are divided among their users. This is the memory that the
            run really takes. Sampled less often; 0 if never.
        samples: Number of samples.
    """

    count: int = 0
    rss_bytes: int = 0
    pss_bytes: int = 0
    samples: int = 0


class ProcessSampler:
    """Samples all processes with a run's mark."""

    def __init__(self, run_id: str) -> None:
        self._marks = {RUN_MARK: run_id}
        self.peaks = ProcessPeaks()
        self.newest_count = 0

    def sample(self) -> None:
        """Take one sample."""
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
    """Resident and proportional bytes. Zeros for a process that has just ended."""
    try:
        process = psutil.Process(pid)
        if with_pss:
            info = process.memory_full_info()
            return info.rss, info.pss
        return process.memory_info().rss, 0
    except (psutil.Error, OSError):
        return 0, 0
