"""Rounds over the paper's cluster: fair shares, whole GPUs, places, progress. The decisions are those of the product.

A gang's rate, in seconds of work per second, is the speedup of its slowest type, times `CROSS_HOST` if it is on more
than one host. Times are exact within a round; GPUs that a job leaves early stay idle until the next round. Restarts
take no time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rm_plugin.policies.oef.decision import OefMemory, decide_round
from rm_plugin.policies.oef.evaluator import Rule
from rm_plugin.policies.oef.placement import HostGang, WaitingJob, place_compactly, place_plainly
from rm_plugin.policies.oef.speedup import Instance, Tenant
from themis.values import Value
from themis_lab.paper.oef.workload import CAPACITY, HOSTS, ROUND_S, TYPES, Job, TenantLoad

CROSS_HOST = 0.8
"""Efficiency of a gang on more than one host."""


class TenantRound(Value, frozen=True, kw_only=True):
    """Throughput of a tenant in a round, promised by its fair share and achieved, in GPUs of the slowest type."""

    estimated: float
    actual: float


@dataclass(slots=True, kw_only=True)
class Record:
    """What happened in a run.

    Attributes:
        rounds: By round, the active tenants.
        completion_s: From arrival to end, of every job that ended.
        gang_workers: Workers in gangs of more than one, summed over rounds.
        straggler_workers: Those in gangs of several types.
        cross_host_gangs: Gangs on several hosts, summed over rounds.
        restarts: Starts of jobs elsewhere than they ran before.
        longest_wait: The most rounds that a job waited in a row.
        ended_s: When the last job of each tenant ended.
    """

    rounds: list[Mapping[str, TenantRound]] = field(default_factory=list)
    completion_s: dict[str, float] = field(default_factory=dict)
    gang_workers: int = 0
    straggler_workers: int = 0
    cross_host_gangs: int = 0
    restarts: int = 0
    longest_wait: int = 0
    ended_s: dict[str, float] = field(default_factory=dict)

    def mean_actual(self, tenant_id: str, first: int = 0, last: int | None = None) -> float:
        """A tenant's mean actual throughput over rounds in which it was active."""
        values = [tenants[tenant_id].actual for tenants in self.rounds[first:last] if tenant_id in tenants]
        return math.fsum(values) / max(len(values), 1)

    def mean_estimated(self, tenant_id: str, first: int = 0, last: int | None = None) -> float:
        """The same of the throughput that its fair share promises."""
        values = [tenants[tenant_id].estimated for tenants in self.rounds[first:last] if tenant_id in tenants]
        return math.fsum(values) / max(len(values), 1)


@dataclass(slots=True)
class _JobState:
    job: Job
    left_s: float
    starved_rounds: int = 0
    gang: HostGang | None = None
    last_gang: HostGang | None = None


class Driver:
    """One run.

    Args:
        loads: The tenants.
        rule: Divides the cluster.
        compact: OEF's placer and its rule on smallest gangs; otherwise the plain placer, and rounding without the rule.
    """

    def __init__(self, loads: Sequence[TenantLoad], rule: Rule, *, compact: bool) -> None:
        self._loads = {load.tenant_id: load for load in loads}
        self._rule = rule
        self._compact = compact
        self._jobs = {load.tenant_id: {job.job_id: _JobState(job, job.work_s) for job in load.jobs} for load in loads}
        self._memory = OefMemory()
        self._efficiency: Mapping[str, float] = {}
        self.record = Record()

    def run(self, most_rounds: int) -> Record:
        """Run until all jobs have ended, at most this number of rounds."""
        for number in range(most_rounds):
            if not any(self._jobs.values()):
                break
            self._round(number * ROUND_S)
        return self.record

    def _round(self, now_s: float) -> None:
        runnable = self._runnable(now_s)
        decided = decide_round(
            self._memory,
            self._instance(runnable),
            [self._waiting(tenant, state) for tenant, states in runnable.items() for state in states],
            HOSTS,
            self._rule,
            place=place_compactly if self._compact else place_plainly,
            smallest_gangs=self._compact,
        )
        self._memory = decided.memory
        if decided.fair is not None:
            self._efficiency = {
                tenant: math.fsum(a * b for a, b in zip(self._loads[tenant].speedup, share, strict=True))
                for tenant, share in decided.fair.share.items()
            }
        self.record.rounds.append(
            {
                tenant: TenantRound(
                    estimated=self._efficiency[tenant],
                    actual=math.fsum(
                        self._advance(tenant, state, decided.placed.get(state.job.job_id), now_s) for state in states
                    ),
                )
                for tenant, states in runnable.items()
            }
        )

    def _runnable(self, now_s: float) -> dict[str, list[_JobState]]:
        """Jobs that could run, by tenant; tenants without any are absent."""
        found = {}
        for tenant, states in self._jobs.items():
            load = self._loads[tenant]
            if now_s >= load.leaves_s:
                states.clear()
            here = [state for state in states.values() if state.job.arrival_s <= now_s]
            if here and now_s >= load.arrives_s:
                found[tenant] = here
        return found

    def _instance(self, active: Iterable[str]) -> Instance | None:
        """What the active tenants claim."""
        tenants = tuple(
            Tenant(tenant_id=load.tenant_id, speedup=load.claimed or load.speedup, weight=load.weight)
            for load in (self._loads[tenant] for tenant in active)
        )
        return Instance(types=TYPES, capacity=CAPACITY, tenants=tenants) if tenants else None

    def _waiting(self, tenant: str, state: _JobState) -> WaitingJob:
        return WaitingJob(
            job_id=state.job.job_id,
            tenant_id=tenant,
            smallest=state.job.gang,
            largest=state.job.gang,
            speedup=self._loads[tenant].speedup,
            starved_rounds=state.starved_rounds,
            arrival_s=state.job.arrival_s,
            runs_on=state.gang,
        )

    def _advance(self, tenant: str, state: _JobState, gang: HostGang | None, now_s: float) -> float:
        """Run one job for a round. Returns its throughput, in workers on the slowest type."""
        record = self.record
        state.gang = gang
        if gang is None:
            state.starved_rounds += 1
            record.longest_wait = max(record.longest_wait, state.starved_rounds)
            return 0.0
        record.restarts += state.last_gang is not None and gang != state.last_gang
        record.gang_workers += gang.gpus if gang.gpus > 1 else 0
        record.straggler_workers += gang.gpus if len(gang.type_numbers) > 1 else 0
        record.cross_host_gangs += len(gang.gpus_by_host) > 1
        state.starved_rounds, state.last_gang = 0, gang
        rate = min(self._loads[tenant].speedup[number] for number in gang.type_numbers)
        rate *= CROSS_HOST if len(gang.gpus_by_host) > 1 else 1.0
        ran_s = min(ROUND_S, state.left_s / rate)
        state.left_s -= ran_s * rate
        if state.left_s <= 1e-6:
            end_s = now_s + ran_s
            record.completion_s[state.job.job_id] = end_s - state.job.arrival_s
            record.ended_s[tenant] = max(end_s, record.ended_s.get(tenant, 0.0))
            del self._jobs[tenant][state.job.job_id]
        return rate * gang.gpus * ran_s / ROUND_S


def run(loads: Sequence[TenantLoad], rule: Rule, *, compact: bool, rounds: int) -> Record:
    """Run tenants under a rule and a placer for at most this number of rounds."""
    return Driver(loads, rule, compact=compact).run(rounds)
