"""Random instances of AlloX, their documents, and smaller ones.

The instances are small, so that brute force can compare them, and full of ties: whole times, machines that are free at
one time, jobs that can run on few types.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.allox.values import Capacity, Configuration, Job, Machine, Snapshot, UserState
from themis.values import Value

_TYPES = ("cpu", "gpu", "tpu")
_USERS = ("ann", "bob", "cyd")


class AlloxCase(Value, frozen=True, kw_only=True):
    """An instance: jobs and machines at one time, alpha, and the users who have started jobs before."""

    now_s: float
    jobs: tuple[Job, ...]
    machines: tuple[Machine, ...]
    alpha: float
    users: Mapping[str, UserState] = {}

    @property
    def snapshot(self) -> Snapshot:
        """What the policy sees."""
        units = Counter(machine.type_name for machine in self.machines)
        return Snapshot(
            now_s=self.now_s,
            machines=self.machines,
            waiting=self.jobs,
            capacity=Capacity(units={name: float(count) for name, count in units.items()}),
            users=self.users,
        )

    @property
    def users_text(self) -> str:
        """The users' progress and last starts, which a document of the instance does not have."""
        said = [f"{name} {state.progress:g} since {state.last_start_s:g} s" for name, state in self.users.items()]
        return f"progress: {', '.join(said) or 'none'}"


def random_instance(seed: int, number: int) -> AlloxCase:
    """Instance `number` of an audit's seed: up to 6 jobs, or one time in three up to 20, on up to 5 machines."""
    rng = random.Random(child_seed(seed, "allox case", str(number)))
    whole = rng.random() < 0.5
    now_s = float(rng.randint(0, 50))

    def seconds(most: int) -> float:
        return float(rng.randint(1, most)) if whole else rng.uniform(0.01, most)

    machines = tuple(
        machine_at(f"m{place}", rng.choice(_TYPES), 0.0 if rng.random() < 0.5 else now_s + seconds(30), now_s)
        for place in range(rng.randint(1, 5))
    )
    types = sorted({machine.type_name for machine in machines})
    jobs = []
    for place in range(rng.randint(0, 20 if rng.random() < 1 / 3 else 6)):
        runs_on = {name for name in types if rng.random() < 0.8} or {rng.choice(types)}
        jobs.append(
            Job(
                job_id=f"j{place:02}",
                user=rng.choice(_USERS),
                arrival_s=rng.uniform(0.0, now_s),
                configurations={name: Configuration(time_s=seconds(40)) for name in sorted(runs_on)},
            )
        )
    alpha = rng.choice((0.0, 0.1, 0.5, 1.0))
    return AlloxCase(now_s=now_s, jobs=tuple(jobs), machines=machines, alpha=alpha, users=_random_users(rng, now_s))


def _random_users(rng: random.Random, now_s: float) -> dict[str, UserState]:
    """Most users have started jobs. Progress and times tie often, so that each key of the ranking decides sometimes."""
    return {
        name: UserState(
            progress=rng.choice((0.0, 0.5, 0.5, 1.0, rng.uniform(0.0, 2.0))),
            last_start_s=rng.choice((0.0, float(rng.randint(0, int(now_s))))),
        )
        for name in _USERS
        if rng.random() < 0.8
    }


def machine_at(machine_id: str, type_name: str, available_s: float, now_s: float) -> Machine:
    """A machine that is idle if it is available by now."""
    return Machine(machine_id=machine_id, type_name=type_name, available_s=available_s, is_idle=available_s <= now_s)


def instance_document(case: AlloxCase) -> dict[str, object]:
    """The instance as `themis allox --instance` reads it."""
    types = sorted({machine.type_name for machine in case.machines})
    return {
        "machines": [
            {"id": each.machine_id, "type": each.type_name, "available_s": each.available_s} for each in case.machines
        ],
        "jobs": [
            {
                "id": job.job_id,
                "user": job.user,
                "arrival_s": job.arrival_s,
                "time_s": {
                    name: job.configurations[name].time_s if name in job.configurations else None for name in types
                },
            }
            for job in case.jobs
        ],
        "now_s": case.now_s,
    }


def smaller(case: AlloxCase) -> Iterator[AlloxCase]:
    """Instances one step smaller in which every job can still run."""
    for place in range(len(case.jobs)):
        yield replace(case, jobs=case.jobs[:place] + case.jobs[place + 1 :])
    for place in range(len(case.machines)):
        machines = case.machines[:place] + case.machines[place + 1 :]
        types = {machine.type_name for machine in machines}
        if all(types & job.configurations.keys() for job in case.jobs):
            yield replace(case, machines=machines)
    for place, machine in enumerate(case.machines):
        if machine.available_s:
            idle = machine_at(machine.machine_id, machine.type_name, 0.0, case.now_s)
            yield replace(case, machines=(*case.machines[:place], idle, *case.machines[place + 1 :]))
    for name in case.users:
        yield replace(case, users={other: state for other, state in case.users.items() if other != name})
    for place, job in enumerate(case.jobs):
        for other in _rounder(job):
            yield replace(case, jobs=(*case.jobs[:place], other, *case.jobs[place + 1 :]))


def _rounder(job: Job) -> Iterator[Job]:
    """The job with one time at most as large and with fewer digits."""
    for name, configuration in job.configurations.items():
        for time_s in (1.0, float(f"{configuration.time_s:.1g}"), math.floor(configuration.time_s)):
            if 0.0 < time_s < configuration.time_s:
                yield Job(
                    job_id=job.job_id,
                    user=job.user,
                    arrival_s=job.arrival_s,
                    configurations={**job.configurations, name: Configuration(time_s=float(time_s))},
                )
