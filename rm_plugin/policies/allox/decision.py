"""Algorithm 2 of AlloX: which waiting jobs start now, and on which machines.

AlloX lets only the jobs of the users with the least progress into the matching of Algorithm 1, over all machines, busy
ones included. Of the matching it starts only the first jobs of machines that are idle now. If none of these machines
gets a job, more users are let in. If all users are in, the matching prefers to wait, and the machine stays idle.

Example: one job takes 5 s on a GPU and 100 s on a CPU. The CPU is idle and the GPU is free in 10 s. The job does not
start: it ends after 15 s if it waits. If the GPU were free in 200 s, it would start on the CPU.

The comments number the steps. The paper's algorithm 2, which is called for one idle machine, is steps 2 to 6: rank the
users and let in the share alpha (its line 2), build and solve the matching (lines 3 to 7), start the first job of the
machine's queue (the loops). Beyond the paper are these:

* one call looks at all idle machines, until none gets a job (step 1);
* with all users let in, all first jobs start from one matching (step 6): its rest stays optimal;
* without a job for any idle machine, twice as many users are let in (step 7; section 4.4 raises alpha, which never
  leaves 0);
* users with equal progress are ordered by their last start (`rank_users`).

Source: Le et al., EuroSys 2020, sections 3.2, 3.3 and 4.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from rm_plugin.policies.allox.matching import Matching, match
from rm_plugin.policies.allox.progress import value_of
from rm_plugin.policies.allox.values import Decision, Job, Machine, Snapshot, Start, UserState, arrival_order
from themis.errors import InputError
from themis.values import Value

_ROUNDING = 1e-9
"""0.07 of 100 users is 7.000000000000001 in floating point, and must count as 7."""


class Place(Value, frozen=True, kw_only=True):
    """A job's place in a matching: its machine, k, and when it would start and end."""

    machine_id: str
    position_from_end: int
    start_s: float
    end_s: float


class Solve(Value, frozen=True, kw_only=True):
    """One matching of a decision.

    Attributes:
        ranked_users: All users with a waiting job, the least progress first, and the progress of each.
        considered: How many of them were let in; the paper's A is their jobs.
        widening: 1, or the factor by which `considered` was raised because no idle machine got a job.
        places: Place by job that was let in.
        positions_used: Jobs on the machine with the longest queue.
        positions_offered: The most positions that the solver saw of a machine.
        is_certified: Whether the offered positions prove optimality.
    """

    ranked_users: tuple[tuple[str, float], ...]
    considered: int
    widening: int
    places: Mapping[str, Place]
    positions_used: int = 0
    positions_offered: int = 0
    is_certified: bool = True


class AlloxDecision(Decision, frozen=True, kw_only=True):
    """A decision with the matchings that led to it, in order."""

    solves: tuple[Solve, ...] = ()


def decide(snapshot: Snapshot, alpha: float = 0.1) -> AlloxDecision:
    """Decide which jobs start now.

    Example of widening: ten users and alpha 0.1. The matching has the jobs of one user. As long as no idle machine gets
    one of them, it has those of 2, 4, 8 and at last all 10 users.

    Args:
        snapshot: The cluster, the waiting jobs and the users.
        alpha: Share of the users with a waiting job whose jobs are let in, from 0 (the user with the least progress) to
            1 (all users: no fairness filter).

    Raises:
        InputError: `alpha` is not in [0, 1].
    """
    if not 0.0 <= alpha <= 1.0:
        raise InputError("alpha must be from 0 to 1", value=alpha)
    # Sorted, so that equal snapshots in another order give the same decision.
    machines = sorted(snapshot.machines, key=lambda machine: machine.machine_id)
    types = {machine.type_name for machine in machines}
    # A job whose types have all left the cluster waits for them to return.
    waiting = sorted((job for job in snapshot.waiting if types & job.configurations.keys()), key=arrival_order)
    users = dict(snapshot.users)
    starts: list[Start] = []
    solves: list[Solve] = []
    widening = 1
    # Step 1: stop if no job waits or no machine is idle.
    while waiting and any(machine.is_idle for machine in machines):
        # Step 2: rank the users by progress.
        ranked = rank_users(waiting, users)
        # Step 3: let in the share alpha of them.
        considered = min(len(ranked), widening * max(1, math.ceil(alpha * len(ranked) - _ROUNDING)))
        # Step 4: match their jobs with all machines.
        let_in = set(ranked[:considered])
        jobs = [job for job in waiting if job.user in let_in]
        matching = match_jobs(jobs, machines, snapshot.now_s)
        solves.append(
            Solve(
                ranked_users=tuple((user, users.get(user, UserState()).progress) for user in ranked),
                considered=considered,
                widening=widening,
                places=places_of(jobs, machines, matching, snapshot.now_s),
                positions_used=max(map(len, matching.queues)),
                positions_offered=max(matching.positions_offered),
                is_certified=matching.is_certified,
            )
        )
        # Step 5: the candidate of an idle machine is the first job of its queue.
        candidates = [
            Start(
                job=jobs[queue[0]],
                machine_id=machine.machine_id,
                type_name=machine.type_name,
                value=value_of(jobs[queue[0]], machine.type_name, snapshot.capacity),
            )
            for machine, queue in zip(machines, matching.queues, strict=True)
            if machine.is_idle and queue
        ]
        everyone = considered == len(ranked)
        # Step 6: start the first candidate and decide again; with all users in, the rest of the matching stays optimal.
        chosen = candidates if everyone else candidates[:1]
        for start in chosen:
            starts.append(start)
            waiting.remove(start.job)
            place = next(index for index, each in enumerate(machines) if each.machine_id == start.machine_id)
            until_s = snapshot.now_s + start.job.time_s(start.type_name)
            machines[place] = replace(machines[place], available_s=until_s, is_idle=False)
            before = users.get(start.job.user, UserState())
            users[start.job.user] = UserState(progress=before.progress + start.value, last_start_s=snapshot.now_s)
        if everyone:
            break
        # Step 7: without a candidate let more users in, until the decision ends.
        if not candidates:
            widening *= 2
    return AlloxDecision(starts=tuple(starts), solves=tuple(solves))


def rank_users(waiting: Sequence[Job], users: Mapping[str, UserState]) -> list[str]:
    """Users with a waiting job: the least progress first, then the longest time since a start, the oldest job, the id.

    The second key prevents starvation. Progress has no memory: on a small cluster all users are at 0 whenever a machine
    becomes free, and a fixed order would serve the same user each time.
    """
    oldest_s: dict[str, float] = {}
    for job in waiting:
        oldest_s[job.user] = min(job.arrival_s, oldest_s.get(job.user, math.inf))

    def key(user: str) -> tuple[float, float, float, str]:
        state = users.get(user, UserState())
        return state.progress, state.last_start_s, oldest_s[user], user

    return sorted(oldest_s, key=key)


def match_jobs(jobs: Sequence[Job], machines: Sequence[Machine], now_s: float) -> Matching:
    """Match jobs with machines."""
    types = sorted({machine.type_name for machine in machines})
    column = {name: place for place, name in enumerate(types)}
    times_s = np.array([[job.time_s(name) for name in types] for job in jobs]).reshape(len(jobs), len(types))
    return match(
        times_s,
        [column[machine.type_name] for machine in machines],
        [free_at_s(machine, now_s) - now_s for machine in machines],
    )


def free_at_s(machine: Machine, now_s: float) -> float:
    """When the machine is free: now if it is idle or its job overruns the estimate."""
    return now_s if machine.is_idle else max(now_s, machine.available_s)


def places_of(jobs: Sequence[Job], machines: Sequence[Machine], matching: Matching, now_s: float) -> dict[str, Place]:
    """The place of each job in a matching of `match_jobs`, by job id."""
    places: dict[str, Place] = {}
    for machine, queue in zip(machines, matching.queues, strict=True):
        at_s = free_at_s(machine, now_s)
        for place, job in enumerate(queue):
            start_s, at_s = at_s, at_s + jobs[job].time_s(machine.type_name)
            places[jobs[job].job_id] = Place(
                machine_id=machine.machine_id, position_from_end=len(queue) - place, start_s=start_s, end_s=at_s
            )
    return places
