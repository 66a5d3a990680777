"""How many GPUs were leased, and how fair the cluster was, over time, in bounded memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

MAX_SAMPLES = 720
"""At this number, pairs of neighbours merge. One sample in 5 s makes an hour at first, then two hours, then four."""


class UsageSample(NamedTuple):
    """A moment or, after a merge, a stretch of time from `time_s`.

    Attributes:
        time_s: Seconds since the epoch.
        leased, available: GPUs that apps held, and GPUs of machines that were not lost. The mean of a stretch.
        max_rho: The largest rho of a running app, or NaN without one. The largest of a stretch.
    """

    time_s: float
    leased: float
    available: float
    max_rho: float


class UsageHistory:
    """Samples since the start of the ResourceManager, evenly spaced.

    Example: with `MAX_SAMPLES` of 4, the samples 1, 2, 3, 4 merge into two samples of two each. The next two samples
    make the third.
    """

    def __init__(self) -> None:
        self._samples: list[UsageSample] = []
        self._open: list[UsageSample] = []
        self._stride = 1

    @property
    def samples(self) -> Sequence[UsageSample]:
        """The samples in order of time. The last one may cover less time than the others."""
        return (*self._samples, _merged(self._open)) if self._open else tuple(self._samples)

    def add(self, sample: UsageSample) -> None:
        """Add a sample, later than all others."""
        self._open.append(sample)
        if len(self._open) < self._stride:
            return
        self._samples.append(_merged(self._open))
        self._open = []
        if len(self._samples) == MAX_SAMPLES:
            self._samples = [_merged(self._samples[at : at + 2]) for at in range(0, MAX_SAMPLES, 2)]
            self._stride *= 2


def _merged(samples: Sequence[UsageSample]) -> UsageSample:
    known = [sample.max_rho for sample in samples if not math.isnan(sample.max_rho)]
    return UsageSample(
        samples[0].time_s,
        sum(sample.leased for sample in samples) / len(samples),
        sum(sample.available for sample in samples) / len(samples),
        max(known, default=math.nan),
    )
