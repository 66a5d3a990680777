"""Estimates of processing times from short sample runs (AlloX, section 4.1): events in, instructions out.

A job runs two samples on each device type that it can use, of 1 % and 2 % of its iterations. Its time is linear in the
iterations, so two samples give it: from (10 iterations, 25 s) and (20 iterations, 30 s) follow 0.5 s per iteration and
20 s of start-up, and for 1000 iterations 520 s. A job waits until all its samples have ended.

Samples go before real jobs, in turn over users, on at most `sample_limit` machines per type. A sample that runs much
longer than the finished ones is cut: the job is known to be long, and its estimate becomes a lower bound.

The reproduction drives the state machine `Estimator`. The policy samples by leases, one job for all of an app
(`rm_plugin/policies/allox_samples.py`), and shares the line through two samples and the rule of cuts.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec.structs import replace

from themis.bids import SAMPLE_FRACTIONS
from themis.errors import InvariantError
from themis.lifecycle import Lifecycle
from themis.values import Value

CUT_FACTOR = 5.0
"""A sample is cut when it runs this many times as long as the median finished sample of its type; our choice."""

MIN_FINISHED = 3
"""No sample of a type is cut before this many have finished there; our choice."""


MIN_SAMPLE_S = 1.0
"""A sample lasts this long at least, as in the authors' simulator."""


class SampleState(StrEnum):
    """States of a sample. A sample whose machine is lost is queued again."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    DONE = "DONE"
    CUT = "CUT"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


SAMPLE_LIFECYCLE: Lifecycle[SampleState] = Lifecycle(
    "sample",
    {
        SampleState.QUEUED: (SampleState.RUNNING, SampleState.CUT, SampleState.FAILED, SampleState.CANCELLED),
        SampleState.RUNNING: (
            SampleState.DONE,
            SampleState.CUT,
            SampleState.FAILED,
            SampleState.CANCELLED,
            SampleState.QUEUED,
        ),
    },
)
"""Lifecycle of a sample. Its other sample on the type is cut or fails with it, because it is no longer needed."""


class Sample(Value, frozen=True, kw_only=True):
    """One sample run of a job.

    Attributes:
        job_id: The job.
        user: Its user.
        type_name: The device type that it measures.
        part: 0 for the shorter, 1 for the longer sample.
        iterations: Iterations that it runs.
        job_iterations: Iterations of the whole job.
        state: See `SampleState`.
        machine_id: Where it runs; empty before.
        started_s: When it started.
        elapsed_s: Its length, once it has ended.
        memory_gb: Peak memory seen in it.
    """

    job_id: str
    user: str
    type_name: str
    part: int
    iterations: float
    job_iterations: float
    state: SampleState = SampleState.QUEUED
    machine_id: str = ""
    started_s: float = 0.0
    elapsed_s: float = 0.0
    memory_gb: float = 0.0

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifies the sample."""
        return self.job_id, self.type_name, self.part


class Estimate(Value, frozen=True, kw_only=True):
    """A job's estimated time and memory on one type. `is_lower_bound` if a sample was cut."""

    time_s: float
    memory_gb: float
    is_lower_bound: bool = False


def extrapolate(first: tuple[float, float], second: tuple[float, float], iterations: float) -> float:
    """Seconds of `iterations` by the line through two samples (iterations, seconds).

    If the longer sample is not slower, measurement noise hides the slope. Then the time is in proportion to the longer.
    Less than the shorter sample is in proportion to that one, because the line may fall below 0 there.
    """
    (n1, t1), (n2, t2) = first, second
    if iterations < n1:
        return t1 * iterations / n1
    slope = (t2 - t1) / (n2 - n1)
    return t2 * iterations / n2 if slope <= 0.0 else t1 - slope * n1 + slope * iterations


def cut_after_s(finished_s: Sequence[float]) -> float | None:
    """Seconds after which a sample is cut, from those of the finished samples of its type, in ascending order.

    None if too few have finished. Example: samples of 8, 10 and 30 s have the median 10 s: the next is cut after 50 s.
    """
    return CUT_FACTOR * finished_s[len(finished_s) // 2] if len(finished_s) >= MIN_FINISHED else None


class Estimator:
    """All samples of all jobs. The caller starts and stops runs as instructed, and reports how they end.

    Args:
        sample_limit: Most machines of each type that run samples at once.
        samples: Samples of an earlier estimator, to continue it.
    """

    def __init__(self, sample_limit: Mapping[str, int], samples: Iterable[Sample] = ()) -> None:
        self._limit = dict(sample_limit)
        self._samples: dict[tuple[str, str, int], Sample] = {}
        self._by_job: dict[str, list[tuple[str, str, int]]] = {}
        self._queues: dict[str, dict[str, deque[tuple[str, str, int]]]] = {}
        self._running: dict[tuple[str, str, int], None] = {}
        self._finished_s: dict[str, list[float]] = {}
        for sample in samples:
            self._add(sample)

    def submit(
        self, job_id: str, user: str, iterations: Mapping[str, float], fractions: tuple[float, float] = SAMPLE_FRACTIONS
    ) -> None:
        """Queue the samples of a job.

        Args:
            job_id: The job.
            user: Its user.
            iterations: Its iterations on each device type that it can use.
            fractions: Shares of the iterations that the two samples run.
        """
        for type_name, count in iterations.items():
            for part, fraction in enumerate(fractions):
                self._add(
                    Sample(
                        job_id=job_id,
                        user=user,
                        type_name=type_name,
                        part=part,
                        iterations=fraction * count,
                        job_iterations=count,
                    )
                )

    def next_samples(self, idle: Mapping[str, Sequence[str]], now_s: float) -> list[Sample]:
        """Start samples on idle machines, given by type. Returns the samples to start, with their machines."""
        started: list[Sample] = []
        for type_name, machines in idle.items():
            in_use = sum(key[1] == type_name for key in self._running)
            for machine_id in machines[: max(0, self._limit.get(type_name, 0) - in_use)]:
                sample = self._pop(type_name)
                if sample is None:
                    break
                self._running[sample.key] = None
                started.append(self._move(sample, SampleState.RUNNING, machine_id=machine_id, started_s=now_s))
        return started

    def cuts(self, now_s: float) -> list[Sample]:
        """Cut running samples that are much longer than the finished ones. Returns those to stop."""
        cut = []
        for sample in [self._samples[key] for key in self._running]:
            limit_s = cut_after_s(self._finished_s.get(sample.type_name, []))
            if limit_s is not None and now_s - sample.started_s >= limit_s:
                self._end(sample, SampleState.CUT, elapsed_s=now_s - sample.started_s)
                cut.append(self._samples[sample.key])
                # A queued second sample could only confirm that the job is long.
                self._drop_queued(sample, SampleState.CUT)
        return cut

    def finished(self, key: tuple[str, str, int], elapsed_s: float, memory_gb: float = 0.0) -> None:
        """A sample ended by itself."""
        sample = self._samples[key]
        self._end(sample, SampleState.DONE, elapsed_s=elapsed_s, memory_gb=memory_gb)
        bisect.insort(self._finished_s.setdefault(sample.type_name, []), elapsed_s)

    def failed(self, key: tuple[str, str, int]) -> None:
        """A sample failed: its job cannot run on the type."""
        sample = self._samples[key]
        self._end(sample, SampleState.FAILED)
        self._drop_queued(sample, SampleState.FAILED)

    def machine_lost(self, machine_id: str) -> None:
        """Queue the sample of a machine that left the cluster again."""
        for sample in [self._samples[key] for key in self._running]:
            if sample.machine_id == machine_id:
                del self._running[sample.key]
                self._move(sample, SampleState.QUEUED, machine_id="", started_s=0.0)
                self._enqueue(sample.key)

    def cancel(self, job_id: str) -> list[Sample]:
        """Cancel the samples of a job that was killed. Returns the running ones, to be stopped."""
        samples = [self._samples[key] for key in self._by_job.get(job_id, ())]
        running = [sample for sample in samples if sample.state is SampleState.RUNNING]
        for sample in samples:
            if not SAMPLE_LIFECYCLE.is_final(sample.state):
                self._running.pop(sample.key, None)
                self._move(sample, SampleState.CANCELLED)
        return running

    def estimates(self, job_id: str) -> dict[str, Estimate] | None:
        """Estimates by type once all samples of the job have ended; types whose samples failed are absent.

        Returns None before. An empty result means that the job can run nowhere.
        """
        samples = [self._samples[key] for key in self._by_job[job_id]]
        if not all(SAMPLE_LIFECYCLE.is_final(sample.state) for sample in samples):
            return None
        found: dict[str, Estimate] = {}
        for first, second in zip(samples[::2], samples[1::2], strict=True):
            estimate = _estimate(first, second)
            if estimate is not None:
                found[first.type_name] = estimate
        return found

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples: the whole state, to be stored."""
        return tuple(self._samples.values())

    def _add(self, sample: Sample) -> None:
        if sample.key in self._samples:
            raise InvariantError("a job is profiled twice", value=sample.job_id)
        self._samples[sample.key] = sample
        self._by_job.setdefault(sample.job_id, []).append(sample.key)
        if sample.state is SampleState.QUEUED:
            self._enqueue(sample.key)
        elif sample.state is SampleState.RUNNING:
            self._running[sample.key] = None
        elif sample.state is SampleState.DONE:
            bisect.insort(self._finished_s.setdefault(sample.type_name, []), sample.elapsed_s)

    def _enqueue(self, key: tuple[str, str, int]) -> None:
        sample = self._samples[key]
        self._queues.setdefault(sample.type_name, {}).setdefault(sample.user, deque()).append(key)

    def _pop(self, type_name: str) -> Sample | None:
        """The next queued sample of a type; its user goes to the end of the line."""
        queues = self._queues.get(type_name, {})
        while queues:
            user = next(iter(queues))
            queue = queues.pop(user)
            while queue:
                sample = self._samples[queue.popleft()]
                if sample.state is SampleState.QUEUED:
                    if queue:
                        queues[user] = queue
                    return sample
        return None

    def _end(self, sample: Sample, state: SampleState, *, elapsed_s: float = 0.0, memory_gb: float = 0.0) -> None:
        self._move(sample, state, elapsed_s=elapsed_s, memory_gb=memory_gb)
        self._running.pop(sample.key, None)

    def _move(self, sample: Sample, state: SampleState, **changes: object) -> Sample:
        SAMPLE_LIFECYCLE.check(sample.state, state, sample.key)
        self._samples[sample.key] = moved = replace(sample, state=state, **changes)
        return moved

    def _drop_queued(self, ended: Sample, state: SampleState) -> None:
        other = self._samples[ended.job_id, ended.type_name, 1 - ended.part]
        if other.state is SampleState.QUEUED:
            self._move(other, state)


def _estimate(first: Sample, second: Sample) -> Estimate | None:
    """The estimate that two ended samples of one type give; None if one failed."""
    pair = (first, second)
    if any(sample.state in (SampleState.FAILED, SampleState.CANCELLED) for sample in pair):
        return None
    memory_gb = max(sample.memory_gb for sample in pair)
    if any(sample.state is SampleState.CUT for sample in pair):
        # The largest of what the samples prove: as if a cut sample had ended when it was cut.
        time_s = max(sample.elapsed_s * sample.job_iterations / sample.iterations for sample in pair)
        return Estimate(time_s=time_s, memory_gb=memory_gb, is_lower_bound=True)
    points = [(sample.iterations, sample.elapsed_s) for sample in pair]
    return Estimate(time_s=extrapolate(points[0], points[1], first.job_iterations), memory_gb=memory_gb)
