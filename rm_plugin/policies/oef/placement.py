"""Which jobs run on a tenant's GPUs, and where (Middleware'24, sections 4.3 and 4.4): OEF's placer, and a plain one.

OEF's placer:
    1. In each tenant, jobs that have waited longest run first (ties: arrival, then id), each up to its largest gang.
    2. A job takes one GPU type if its tenant holds enough of it. Otherwise it takes neighbouring types, and runs at
       the speed of the slowest: all its workers wait for each other.
    3. Larger gangs are placed first: on one host if any has the GPUs, the one with the fewest free GPUs; else on the
       fewest hosts.
    4. A job that runs stays on its GPUs, unless another gang would then be split over hosts that need not be.

The plain placer is for comparison: it mixes types freely, and places jobs in the order of step 1, host by host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rm_plugin.policies.oef.rounding import Whole
from themis.values import Value


class Host(Value, frozen=True, kw_only=True):
    """A machine with GPUs of one type, given by its number."""

    host_id: str
    type_number: int
    gpus: int


class HostGang(Value, frozen=True, kw_only=True):
    """A job's GPUs: how many on each host, and the numbers of the types they have."""

    gpus_by_host: tuple[tuple[str, int], ...]
    type_numbers: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """All GPUs of the gang."""
        return sum(gpus for _, gpus in self.gpus_by_host)


class WaitingJob(Value, frozen=True, kw_only=True):
    """A job that could run in this round.

    Attributes:
        job_id: Its name.
        tenant_id: Whose shares it uses; the virtual tenant of its job type.
        smallest: Workers that it needs at least.
        largest: Workers that it can use.
        speedup: Of its tenant, by type.
        starved_rounds: Rounds since it last ran.
        arrival_s: When it arrived.
        runs_on: Its GPUs in the last round; None if it did not run.
    """

    job_id: str
    tenant_id: str
    smallest: int
    largest: int
    speedup: tuple[float, ...]
    starved_rounds: int
    arrival_s: float
    runs_on: HostGang | None = None


Placer = Callable[[Sequence[WaitingJob], Sequence[Host], Whole], Mapping[str, HostGang]]
"""Places jobs on hosts, given whole GPUs by tenant and type. Jobs that are missing from the result wait."""

HostScore = Callable[[Host, int, int], tuple[float, ...]]
"""Ranks a host for a gang, given its free GPUs and the gang's size; the smallest score is best."""

_Chosen = tuple[WaitingJob, Mapping[int, int]]
"""A job with its GPUs by type."""


def tightest_fit(_: Host, free: int, gpus: int) -> tuple[float, ...]:
    """Hosts that have enough come first, those with the fewest free GPUs first of them; then those with the most."""
    return (0.0, free) if free >= gpus else (1.0, -free)


def place_compactly(
    jobs: Sequence[WaitingJob], hosts: Sequence[Host], granted: Whole, score: HostScore = tightest_fit
) -> dict[str, HostGang]:
    """OEF's placer.

    Args:
        jobs: Jobs of all tenants.
        hosts: Machines with all their GPUs.
        granted: Whole GPUs by tenant and type; by type at most those of the hosts.
        score: Ranks hosts for a gang.
    """
    by_tenant = _by_starvation(jobs)
    chosen = [choice for tenant, gpus in granted.items() for choice in _choose(by_tenant.get(tenant, ()), gpus)]
    chosen.sort(key=lambda choice: (-sum(choice[1].values()), choice[0].job_id))
    afresh = _place(chosen, hosts, score, keep=False)
    kept = _place(chosen, hosts, score, keep=True)
    return kept if _split_gangs(kept) <= _split_gangs(afresh) else afresh


def place_plainly(jobs: Sequence[WaitingJob], hosts: Sequence[Host], granted: Whole) -> dict[str, HostGang]:
    """The plain placer: no order by size, no preference for one host or one type."""
    free = {host.host_id: host.gpus for host in hosts}
    placed = {}
    by_tenant = _by_starvation(jobs)
    for tenant, gpus in granted.items():
        held = list(gpus)
        for job in by_tenant.get(tenant, ()):
            usable = [have if job.speedup[number] > 0 else 0 for number, have in enumerate(held)]
            if sum(usable) < job.smallest:
                continue
            size, parts = min(job.largest, sum(usable)), dict[int, int]()
            for number, have in enumerate(usable):
                parts[number] = min(have, size - sum(parts.values()))
                held[number] -= parts[number]
            placed[job.job_id] = _take(parts, hosts, free, lambda *_: ())
    return placed


def _by_starvation(jobs: Sequence[WaitingJob]) -> Mapping[str, Sequence[WaitingJob]]:
    """Step 1: the jobs of each tenant in order."""
    by_tenant: dict[str, list[WaitingJob]] = {}
    for job in sorted(jobs, key=lambda job: (-job.starved_rounds, job.arrival_s, job.job_id)):
        by_tenant.setdefault(job.tenant_id, []).append(job)
    return by_tenant


def _choose(jobs: Sequence[WaitingJob], gpus: tuple[int, ...]) -> list[_Chosen]:
    """Steps 1 and 2 for one tenant: the jobs that run, each with its GPUs by type."""
    held = list(gpus)
    chosen: list[_Chosen] = []
    for job in jobs:
        parts = _types_for(job, held)
        if parts:
            chosen.append((job, parts))
            for number, count in parts.items():
                held[number] -= count
    return chosen


def _types_for(job: WaitingJob, held: Sequence[int]) -> dict[int, int]:
    """The GPUs of a job: of the one type on which it is fastest, or of neighbouring types; nothing if too few."""
    alone = [
        (min(have, job.largest) * job.speedup[number], number)
        for number, have in enumerate(held)
        if have >= job.smallest
    ]
    alone = [option for option in alone if option[0] > 0]
    if alone:
        _, number = max(alone)
        return {number: min(held[number], job.largest)}
    usable = [have if job.speedup[number] > 0 else 0 for number, have in enumerate(held)]
    # From the fastest possible slowest type upwards: as few steps as reach the smallest gang.
    for slowest in reversed(range(len(usable))):
        if sum(usable[slowest:]) >= job.smallest:
            parts: dict[int, int] = {}
            for number in range(slowest, len(usable)):
                if count := min(usable[number], job.smallest - sum(parts.values())):
                    parts[number] = count
            return parts
    return {}


def _place(chosen: Sequence[_Chosen], hosts: Sequence[Host], score: HostScore, *, keep: bool) -> dict[str, HostGang]:
    """Step 3. With `keep`, jobs that run on the same types stay where they are, and the others go around them."""
    free = {host.host_id: host.gpus for host in hosts}
    types = {host.host_id: host.type_number for host in hosts}
    placed: dict[str, HostGang] = {}
    for job, parts in chosen if keep else ():
        current = job.runs_on
        if current is not None and _counts(current, types) == dict(parts) and _is_free(current, free):
            placed[job.job_id] = current
            for host_id, gpus in current.gpus_by_host:
                free[host_id] -= gpus
    for job, parts in chosen:
        if job.job_id not in placed:
            placed[job.job_id] = _take(parts, hosts, free, score)
    return placed


def _counts(gang: HostGang, types: Mapping[str, int]) -> dict[int, int]:
    """A gang's GPUs by type; nothing if one of its hosts is gone."""
    counts: dict[int, int] = {}
    for host_id, gpus in gang.gpus_by_host:
        if host_id not in types:
            return {}
        counts[types[host_id]] = counts.get(types[host_id], 0) + gpus
    return counts


def _is_free(gang: HostGang, free: Mapping[str, int]) -> bool:
    return all(free.get(host_id, 0) >= gpus for host_id, gpus in gang.gpus_by_host)


def _take(parts: Mapping[int, int], hosts: Sequence[Host], free: dict[str, int], score: HostScore) -> HostGang:
    """Take GPUs of each type from hosts, the best score first, and reduce what is free."""
    taken: dict[str, int] = {}
    for number, count in parts.items():
        left = count
        while left:
            candidates = [host for host in hosts if host.type_number == number and free[host.host_id] > 0]
            host = min(candidates, key=lambda host: (score(host, free[host.host_id], left), host.host_id))
            gpus = min(left, free[host.host_id])
            taken[host.host_id] = gpus
            free[host.host_id] -= gpus
            left -= gpus
    used = tuple(sorted(number for number, count in parts.items() if count))
    return HostGang(gpus_by_host=tuple(sorted(taken.items())), type_numbers=used)


def _split_gangs(placed: Mapping[str, HostGang]) -> int:
    """Gangs on more than one host."""
    return sum(len(gang.gpus_by_host) > 1 for gang in placed.values())
