"""A tally of samples: count, count above 0, median, 95th percentile, and the largest with its market."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from themis.bids import Market
from themis_lab.audit.values import Sample

COUNTS_FROM = 1e-6
"""Smaller samples are rounding errors and count as 0."""


@dataclass(slots=True)
class Tally:
    """All samples of one measure in one family."""

    values: list[float] = field(default_factory=list)
    worst: Sample | None = None
    worst_number: int = 0
    worst_market: Market | None = None

    def add(self, sample: Sample, number: int, market: Market) -> None:
        """Count a sample of the family's market `number`. Of equal largest samples the first is kept."""
        self.values.append(sample.value)
        if self.worst is None or sample.value > self.worst.value:
            self.worst, self.worst_number, self.worst_market = sample, number, market

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.values)

    @property
    def above_0(self) -> list[float]:
        """Samples larger than rounding errors, in ascending order."""
        return sorted(value for value in self.values if value > COUNTS_FROM)

    @property
    def median(self) -> float:
        """Median of all samples."""
        return median(self.values)

    @property
    def median_above_0(self) -> float:
        """Median of the samples above 0; 0 if there are none."""
        return median(self.above_0) if self.above_0 else 0.0

    @property
    def p95(self) -> float:
        """The sample that 95 % do not exceed."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
