"""The course of a job's longest run on each device type: seconds by iterations done, from the run's first log line on.

Two points of it are the samples of AlloX (EuroSys 2020, section 4.1), which need no separate runs, because a run to 2 %
of the job passes 1 % on its way. Only runs on one device count, because several tasks log in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from themis.bids import SAMPLE_FRACTIONS, SampleTimes
from themis.values import Value

_MAX_POINTS = 64
"""Most points kept of a run. At the limit every other point is dropped, and then only every other line counts."""


class SamplePoints(Value, frozen=True, kw_only=True):
    """Two points (iterations, seconds) of a run on one device of a type, the shorter first, and its peak memory."""

    device: str
    points: tuple[tuple[int, float], tuple[int, float]]
    memory_mb: float = 0.0


@dataclass(slots=True)
class _Run:
    """A run on one device of a type: its last line, points (iterations, seconds) in equal steps, and peak memory."""

    device: str
    first_step: int
    memory_mb: float = 0.0
    iterations: int = 0
    seconds: float = 0.0
    lines: int = 0
    stride: int = 1
    points: list[tuple[int, float]] = field(default_factory=list)

    def add(self, step: int, seconds: float) -> None:
        self.iterations, self.seconds = step - self.first_step, self.seconds + seconds
        self.lines += 1
        if self.lines % self.stride == 0:
            self.points.append((self.iterations, self.seconds))
        if len(self.points) > _MAX_POINTS:
            self.points = self.points[1::2]
            self.stride *= 2

    def first_from(self, iterations: float) -> tuple[int, float] | None:
        return next((point for point in self.points if point[0] >= iterations), None)


class FirstIterations:
    """Collects the points (iterations, seconds) of runs by device type.

    Example: a job of 1000 iterations logs steps 0, 10, 20 and 30 after 0, 25, 5 and 5 s: the first ten steps include
    set-up. Its samples are (10, 25 s) and (20, 30 s).
    """

    def __init__(self) -> None:
        self._longest: dict[str, _Run] = {}
        self._device = ""
        self._run: _Run | None = None

    def begin(self, device: str) -> None:
        """Note that a run begins on one device of a type, or on something else if it is empty."""
        self._device = device
        self._run = None

    def used_memory(self, peak_mb: float) -> None:
        """Note the most memory that the present run's task was seen to use."""
        if self._run is not None:
            self._run.memory_mb = max(self._run.memory_mb, peak_mb)

    def add(self, step: int, seconds: float | None) -> None:
        """Add a line of the log, `seconds` after the one before. The time of a run's first line is not needed."""
        run = self._run
        if run is None:
            self._run = _Run(self._device, step) if self._device else None
        elif seconds is None or not 0.0 < seconds < math.inf or step <= run.first_step + run.iterations:
            # Not a log of steps with times by one writer.
            self.begin("")
        else:
            run.add(step, seconds)
            longest = self._longest.get(run.device)
            if longest is None or run.iterations >= longest.iterations:
                self._longest[run.device] = run

    def samples(self, iterations: int, serial_iteration_s: float) -> tuple[SampleTimes, ...]:
        """Return the two samples on every type with a run that was long enough.

        Args:
            iterations: Those of the whole job.
            serial_iteration_s: Seconds of each on the reference GPU; samples count work in these.
        """
        return tuple(
            SampleTimes(
                device=sample.device,
                work_gpu_s=(first * serial_iteration_s, second * serial_iteration_s),
                seconds=(first_s, second_s),
                memory_mb=sample.memory_mb,
            )
            for sample in self.points(iterations)
            for (first, first_s), (second, second_s) in [sample.points]
        )

    def points(self, iterations: int) -> tuple[SamplePoints, ...]:
        """Return the points of the two samples on every type with a run that was long enough."""
        short, long = (fraction * iterations for fraction in SAMPLE_FRACTIONS)
        found = []
        for device, run in sorted(self._longest.items()):
            first = run.first_from(short)
            second = run.first_from(max(long, first[0] + 1)) if first is not None else None
            # Rounding can lose a very short time.
            if first is not None and second is not None and first[1] < second[1]:
                found.append(SamplePoints(device=device, points=(first, second), memory_mb=run.memory_mb))
        return tuple(found)

    def remember(self, samples: Iterable[SamplePoints]) -> None:
        """Add the samples of an earlier attempt. A longer run on the type replaces them."""
        for sample in samples:
            iterations = sample.points[1][0]
            run = _Run(sample.device, 0, sample.memory_mb, iterations, points=list(sample.points))
            self._longest[sample.device] = run
