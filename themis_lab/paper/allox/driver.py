"""An event-driven run of one workload under one policy: the pure decisions, executed on true times.

Order of events at one time: job ends, sample ends, arrivals, each in the order in which they were made. Then samples
start, and then the policy decides once. Policies see estimates only; the driver alone knows both.
"""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.allox.decision import AlloxDecision
from rm_plugin.policies.allox.estimator import MIN_SAMPLE_S, Estimator, Sample
from rm_plugin.policies.allox.progress import ProgressLedger
from rm_plugin.policies.allox.values import (
    Capacity,
    Configuration,
    Decision,
    Job,
    Machine,
    RunningJob,
    Snapshot,
    Start,
)
from themis.values import Value
from themis_lab.simulator.workloads.interchangeable import Trace, TraceJob

Policy = Callable[[Snapshot], Decision]

_ITERATIONS = 1000.0
"""Iterations of every job. Only shares of them matter."""

_MAX_ERROR = 0.99
_BINS = 50

_END, _SAMPLE_END, _ARRIVAL = range(3)


class Profiling(Value, frozen=True, kw_only=True):
    """How estimates come about.

    Attributes:
        sigma: Standard deviation of the relative error of estimates, normal and truncated to +-0.99.
        overhead: Share of a job's iterations in its first sample on a type; the second has twice as many. 0 for
            estimates without samples.
    """

    sigma: float = 0.0
    overhead: float = 0.0


class RunResult(Value, frozen=True, kw_only=True):
    """What one run gave.

    Attributes:
        completion_s: Time from arrival to end, by job.
        ended_s: Time of the end, by job.
        users: User by job.
        spread: Standard deviation of progress over users, averaged over time until the last arrival.
        utilisation: Share of the machines of a type that ran jobs or samples until the last end, by type.
        sample_share: Share of that time that was samples.
        decisions: Calls of the policy.
        nulls: Decisions of AlloX that left an idle machine idle although all users were in.
        widenings: Decisions of AlloX that let more users in.
        series: (time, queue length, spread) in equal steps until the last end.
    """

    completion_s: Mapping[str, float]
    ended_s: Mapping[str, float]
    users: Mapping[str, str]
    spread: float
    utilisation: Mapping[str, float]
    sample_share: float
    decisions: int
    nulls: int
    widenings: int
    series: tuple[tuple[float, float, float], ...]

    @property
    def mean_s(self) -> float:
        """Mean completion time."""
        return math.fsum(self.completion_s.values()) / len(self.completion_s)

    def quantile_s(self, share: float) -> float:
        """The completion time that this share of the jobs do not exceed."""
        ordered = sorted(self.completion_s.values())
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]

    def longest_s(self, share: float = 0.01) -> float:
        """Mean completion time of the jobs that took the longest."""
        ordered = sorted(self.completion_s.values(), reverse=True)
        return statistics.fmean(ordered[: max(1, round(share * len(ordered)))])


@dataclass(slots=True)
class _Slot:
    """A machine and what it runs."""

    machine: Machine
    job: str = ""
    busy_since_s: float = 0.0


@dataclass(slots=True)
class _Live:
    """A job that has arrived."""

    trace: TraceJob
    job: Job | None = None
    fraction_left: float = 1.0
    slot: _Slot | None = None
    started_s: float = 0.0
    run: int = 0


@dataclass(slots=True)
class _Steps:
    """A step function of time."""

    value: float = 0.0
    steps: list[tuple[float, float]] = field(default_factory=list)

    def change(self, now_s: float, value: float) -> None:
        if value != self.value:
            self.value = value
            self.steps.append((now_s, value))

    def until(self, end_s: float) -> float:
        """The mean from 0 to `end_s`."""
        area, at_s, value = 0.0, 0.0, 0.0
        for time_s, other in self.steps:
            if time_s >= end_s:
                break
            area += (time_s - at_s) * value
            at_s, value = time_s, other
        return (area + (end_s - at_s) * value) / end_s if end_s else 0.0

    def bins(self, end_s: float) -> list[float]:
        """The value in the middle of each of `_BINS` equal steps."""
        values, place, value = [], 0, 0.0
        for index in range(_BINS):
            middle_s = (index + 0.5) * end_s / _BINS
            while place < len(self.steps) and self.steps[place][0] <= middle_s:
                value = self.steps[place][1]
                place += 1
            values.append(value)
        return values


def estimate_error(rng: random.Random, sigma: float) -> float:
    """A relative error: normal with this standard deviation, drawn again beyond +-0.99."""
    while abs(error := rng.gauss(0.0, sigma)) > _MAX_ERROR:
        pass
    return error


def run(trace: Trace, policy: Policy, seed: int = 0, profiling: Profiling | None = None) -> RunResult:
    """Run a workload until all jobs have ended.

    Args:
        trace: The workload and its cluster.
        policy: Decides at every event.
        seed: Seed of estimate errors. Errors depend on the job only, so that they are equal under every policy.
        profiling: Errors and samples; exact estimates without samples if None.
    """
    return _Run(trace, policy, seed, profiling or Profiling()).play()


class _Run:
    def __init__(self, trace: Trace, policy: Policy, seed: int, profiling: Profiling) -> None:
        self.trace, self.policy, self.seed, self.profiling = trace, policy, seed, profiling
        self.now_s = 0.0
        self.users = trace.users
        self.slots = {
            f"{name}-{index:03}": _Slot(
                machine=Machine(machine_id=f"{name}-{index:03}", type_name=name, available_s=0.0, is_idle=True)
            )
            for name, count in trace.machines.items()
            for index in range(count)
        }
        self.capacity = Capacity(
            units={name: float(count) for name, count in trace.machines.items()}, memory_gb=trace.memory_gb
        )
        self.ledger = ProgressLedger()
        # The default limit of samples: half of the machines of each type.
        self.estimator = Estimator({name: max(1, count // 2) for name, count in trace.machines.items()})
        self.live: dict[str, _Live] = {}
        self.waiting: dict[str, Job] = {}
        self.running: dict[str, _Live] = {}
        self.bindings: dict[str, str] = {}
        self.events: list[tuple[float, int, int, object]] = []
        self.made = 0
        self.completion_s: dict[str, float] = {}
        self.ended_s: dict[str, float] = {}
        self.busy_s = dict.fromkeys(trace.machines, 0.0)
        self.sample_s = 0.0
        self.spread, self.queue = _Steps(), _Steps()
        self.decisions = self.nulls = self.widenings = 0

    def play(self) -> RunResult:
        for job in self.trace.jobs:
            self._push(job.arrival_s, _ARRIVAL, job)
        handlers = {_END: self._end, _SAMPLE_END: self._sample_end, _ARRIVAL: self._arrive}
        while self.events:
            self.now_s = self.events[0][0]
            while self.events and self.events[0][0] == self.now_s:
                _, kind, _, what = heapq.heappop(self.events)
                handlers[kind](what)
            if self.profiling.overhead:
                self._sample()
            self._decide()
            self._observe()
        assert len(self.completion_s) == len(self.trace.jobs), "every job ends"
        assert not self.ledger.running, "progress is 0 at the end"
        return self._result()

    def _push(self, time_s: float, kind: int, what: object) -> None:
        self.made += 1
        heapq.heappush(self.events, (time_s, kind, self.made, what))

    def _arrive(self, what: object) -> None:
        assert isinstance(what, TraceJob)
        self.live[what.job_id] = _Live(trace=what)
        if self.profiling.overhead:
            fractions = self.profiling.overhead, 2.0 * self.profiling.overhead
            self.estimator.submit(what.job_id, what.user, dict.fromkeys(what.true_s, _ITERATIONS), fractions)
        else:
            self._ready(what, {name: seconds * self._error(what, name) for name, seconds in what.true_s.items()})

    def _error(self, job: TraceJob, type_name: str) -> float:
        """The factor between an estimate and the truth."""
        if not self.profiling.sigma:
            return 1.0
        rng = random.Random(child_seed(self.seed, "allox error", job.job_id, type_name))
        return 1.0 + estimate_error(rng, self.profiling.sigma)

    def _ready(self, trace: TraceJob, time_s: Mapping[str, float]) -> None:
        """A job's estimates are complete: it waits from now on."""
        job = Job(
            job_id=trace.job_id,
            user=trace.user,
            arrival_s=trace.arrival_s,
            configurations={
                name: Configuration(time_s=seconds, memory_gb=trace.memory_gb[name]) for name, seconds in time_s.items()
            },
        )
        self.live[trace.job_id].job = self.waiting[trace.job_id] = job

    def _sample(self) -> None:
        for sample in self.estimator.cuts(self.now_s):
            self._sample_over(sample)
        idle: dict[str, list[str]] = {}
        for machine_id, slot in self.slots.items():
            if slot.machine.is_idle:
                idle.setdefault(slot.machine.type_name, []).append(machine_id)
        for sample in self.estimator.next_samples(idle, self.now_s):
            self._occupy(self.slots[sample.machine_id], "", self.now_s)
            true_s = self.live[sample.job_id].trace.true_s[sample.type_name]
            length_s = max(MIN_SAMPLE_S, true_s * sample.iterations / sample.job_iterations)
            self._push(self.now_s + length_s, _SAMPLE_END, sample)

    def _sample_end(self, what: object) -> None:
        assert isinstance(what, Sample)
        trace = self.live[what.job_id].trace
        if self.slots[what.machine_id].busy_since_s != what.started_s or self.slots[what.machine_id].job:
            return  # It was cut before.
        # A padded sample reports the time of its iterations, not that of its machine.
        true_s = trace.true_s[what.type_name] * what.iterations / what.job_iterations
        self.estimator.finished(what.key, true_s * self._error(trace, what.type_name), trace.memory_gb[what.type_name])
        self._sample_over(what)

    def _sample_over(self, sample: Sample) -> None:
        self.sample_s += self._release(self.slots[sample.machine_id])
        estimates = self.estimator.estimates(sample.job_id)
        if estimates is not None and sample.job_id not in self.waiting:
            times = {name: estimate.time_s for name, estimate in estimates.items()}
            self._ready(self.live[sample.job_id].trace, times)

    def _decide(self) -> None:
        if not self.waiting and not self.running:
            return
        decision = self.policy(self._snapshot())
        self.decisions += 1
        if isinstance(decision, AlloxDecision) and decision.solves:
            last = decision.solves[-1]
            self.nulls += last.considered == len(last.ranked_users) and not decision.starts
            self.widenings += last.widening > 1
        self.bindings.update(decision.bindings)
        for job_id in decision.preempted:
            self._preempt(job_id)
        for start in decision.starts:
            self._start(start)

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            now_s=self.now_s,
            machines=tuple(slot.machine for slot in self.slots.values()),
            waiting=tuple(self.waiting.values()),
            capacity=self.capacity,
            users=self.ledger.users(),
            running=tuple(self._running(live) for live in self.running.values()),
            bindings=self.bindings,
            fraction_left={job_id: self.live[job_id].fraction_left for job_id in self.waiting},
        )

    def _running(self, live: _Live) -> RunningJob:
        assert live.job is not None
        assert live.slot is not None
        machine = live.slot.machine
        return RunningJob(
            job=live.job,
            machine_id=machine.machine_id,
            type_name=machine.type_name,
            fraction_left=self._left(live, machine.type_name),
        )

    def _left(self, live: _Live, type_name: str) -> float:
        return max(0.0, live.fraction_left - (self.now_s - live.started_s) / live.trace.true_s[type_name])

    def _start(self, start: Start) -> None:
        slot, live = self.slots[start.machine_id], self.live[start.job.job_id]
        assert slot.machine.is_idle, "no machine runs two jobs"
        del self.waiting[start.job.job_id]
        live.slot, live.started_s, live.run = slot, self.now_s, live.run + 1
        self.running[start.job.job_id] = live
        self.bindings.pop(start.job.job_id, None)
        self._occupy(slot, start.job.job_id, self.now_s + live.fraction_left * start.job.time_s(start.type_name))
        self.ledger.start(start.job.job_id, start.job.user, start.value, self.now_s)
        end_s = self.now_s + live.fraction_left * live.trace.true_s[start.type_name]
        self._push(end_s, _END, (start.job.job_id, live.run))

    def _preempt(self, job_id: str) -> None:
        live = self.running.pop(job_id)
        assert live.slot is not None
        assert live.job is not None
        live.fraction_left = self._left(live, live.slot.machine.type_name)
        live.run += 1
        self._release(live.slot)
        self.ledger.end(job_id)
        self.waiting[job_id] = live.job

    def _end(self, what: object) -> None:
        assert isinstance(what, tuple)
        job_id, run_number = what
        live = self.live[job_id]
        if live.run != run_number:
            return  # The job was preempted.
        assert live.slot is not None
        del self.running[job_id]
        self._release(live.slot)
        self.ledger.end(job_id)
        live.run += 1
        self.ended_s[job_id] = self.now_s
        self.completion_s[job_id] = self.now_s - live.trace.arrival_s

    def _occupy(self, slot: _Slot, job_id: str, until_s: float) -> None:
        slot.machine = replace(slot.machine, available_s=until_s, is_idle=False)
        slot.job, slot.busy_since_s = job_id, self.now_s

    def _release(self, slot: _Slot) -> float:
        """Make a machine idle. Returns how long it was busy."""
        machine, busy_s = slot.machine, self.now_s - slot.busy_since_s
        self.busy_s[machine.type_name] += busy_s
        slot.machine = replace(machine, available_s=self.now_s, is_idle=True)
        slot.job, slot.busy_since_s = "", math.nan
        return busy_s

    def _observe(self) -> None:
        progress = [state.progress for state in self.ledger.users(self.users).values()]
        self.spread.change(self.now_s, statistics.pstdev(progress) if progress else 0.0)
        self.queue.change(self.now_s, float(len(self.waiting)))

    def _result(self) -> RunResult:
        end_s = max(self.ended_s.values())
        machine_s = {name: count * end_s for name, count in self.trace.machines.items()}
        steps = zip(self.queue.bins(end_s), self.spread.bins(end_s), strict=True)
        return RunResult(
            completion_s=dict(sorted(self.completion_s.items())),
            ended_s=dict(sorted(self.ended_s.items())),
            users={job.job_id: job.user for job in self.trace.jobs},
            spread=self.spread.until(max(self.trace.jobs[-1].arrival_s, 0.0) or end_s),
            utilisation={name: busy_s / machine_s[name] for name, busy_s in self.busy_s.items()},
            sample_share=self.sample_s / math.fsum(machine_s.values()),
            decisions=self.decisions,
            nulls=self.nulls,
            widenings=self.widenings,
            series=tuple(((index + 0.5) * end_s / _BINS, *pair) for index, pair in enumerate(steps)),
        )
