"""What AlloX and its baselines publish for operators: queues, progress, sampling runs, and the size of the matching."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import field
from msgspec.structs import replace

from rm_plugin.policies.allox.decision import AlloxDecision
from rm_plugin.policies.allox.values import Decision, Snapshot, UserState
from rm_plugin.policies.oef.profiling import Profiles, ProfileState
from rm_plugin.policies.port import Figure
from themis.values import Value

NO_TYPE = "none"
"""The label of waiting jobs that are in no queue, because their users were not let in or no machine was idle."""


class RoundCounts(Value, frozen=True, kw_only=True):
    """Counts of the newest round, and totals since the memory began.

    Attributes:
        waiting: Jobs that wait after the round, by the device type whose queue the newest matching put them in.
        users: Users with a waiting job as the last matching of the round began.
        considered: How many of them it let in.
        jobs: Jobs in it.
        machines: Machines in it.
        positions_used: Jobs on the machine with the longest queue.
        positions_offered: The most positions that the solver saw of a machine.
        certified: Whether the offered positions prove that the matching is optimal.
        matchings: Total of matchings.
        widenings: Total of matchings that let more users in than alpha says.
        idle_by_choice: Total over rounds of devices that stayed idle while jobs waited that can run on them.
        sampling_runs: Total of sampling runs.
        short_sampling_runs: Total of those with a shorter lease.
    """

    waiting: Mapping[str, int] = field(default_factory=dict)
    users: int = 0
    considered: int = 0
    jobs: int = 0
    machines: int = 0
    positions_used: int = 0
    positions_offered: int = 0
    certified: bool = True
    matchings: int = 0
    widenings: int = 0
    idle_by_choice: int = 0
    sampling_runs: int = 0
    short_sampling_runs: int = 0


def counted(
    before: RoundCounts, frame: Snapshot, decided: Decision, *, sampling_runs: int, short_sampling_runs: int
) -> RoundCounts:
    """The counts after a round.

    Args:
        before: After the last round.
        frame: What was decided on.
        decided: The decision.
        sampling_runs: Sampling runs that the round starts.
        short_sampling_runs: Those of them with a shorter lease.
    """
    started = {start.job.job_id for start in decided.starts}
    taken = {start.machine_id for start in decided.starts}
    waiting = [job for job in frame.waiting if job.job_id not in started]
    usable = {name for job in waiting for name in job.configurations}
    idle = sum(each.is_idle and each.type_name in usable for each in frame.machines if each.machine_id not in taken)
    solves = decided.solves if isinstance(decided, AlloxDecision) else ()
    type_of = {machine.machine_id: machine.type_name for machine in frame.machines}
    places = solves[-1].places if solves else {}
    queue_of = {job_id: type_of[place.machine_id] for job_id, place in places.items()}
    queues = Counter(queue_of.get(job.job_id, NO_TYPE) for job in waiting)
    after = replace(
        before,
        waiting=dict(sorted(queues.items())),
        idle_by_choice=before.idle_by_choice + idle,
        sampling_runs=before.sampling_runs + sampling_runs,
        short_sampling_runs=before.short_sampling_runs + short_sampling_runs,
    )
    if not solves:
        return after
    return replace(
        after,
        users=len(solves[-1].ranked_users),
        considered=solves[-1].considered,
        jobs=len(places),
        machines=len(frame.machines),
        positions_used=solves[-1].positions_used,
        positions_offered=solves[-1].positions_offered,
        certified=all(solve.is_certified for solve in solves),
        matchings=before.matchings + len(solves),
        widenings=before.widenings + sum(solve.widening > 1 for solve in solves),
    )


def figures_of(
    counts: RoundCounts, users: Mapping[str, UserState], tenants: Iterable[str], profiles: Profiles
) -> tuple[Figure, ...]:
    """The figures of a memory.

    Args:
        counts: The counts after the newest round.
        users: State by tenant; of those with a running job at least.
        tenants: All tenants with an app.
        profiles: Profiles by app.
    """
    progress = [users[tenant].progress if tenant in users else 0.0 for tenant in sorted(set(tenants))]
    runs = Counter(profile.state for profile in profiles.values())
    matching = (
        Figure.one("matching_jobs", "Jobs in the newest matching.", counts.jobs),
        Figure.one("matching_machines", "Machines in the newest matching.", counts.machines),
        Figure(
            name="matching_positions",
            what="Positions of one machine's queue in the newest matching: the most that were used and offered.",
            values=(({"kind": "used"}, counts.positions_used), ({"kind": "offered"}, counts.positions_offered)),
        ),
        Figure.one("matching_proved", "Whether the offered positions prove the newest matching.", counts.certified),
        Figure(
            name="users",
            what="Users with a waiting job in the newest matching, and those whose jobs were let in.",
            values=(({"kind": "waiting"}, counts.users), ({"kind": "considered"}, counts.considered)),
        ),
        Figure.one("matchings_total", "Matchings.", counts.matchings, is_total=True),
        Figure.one("widenings_total", "Matchings with more users than alpha says.", counts.widenings, is_total=True),
    )
    return (
        Figure(
            name="waiting_jobs",
            what="Jobs that wait, by the device type whose queue they are in; none if their users were not let in.",
            values=tuple(({"type": name}, count) for name, count in counts.waiting.items()),
        ),
        Figure.one(
            "progress_stddev",
            "Standard deviation of progress over all users with an app.",
            statistics.pstdev(progress) if progress else 0.0,
        ),
        Figure.one("progress_max", "The largest progress of a user.", max(progress, default=0.0)),
        Figure(
            name="sampling_apps",
            what="Apps on a sampling run, and those that wait for one.",
            values=(
                ({"state": "running"}, runs[ProfileState.RUNNING]),
                ({"state": "waiting"}, runs[ProfileState.REQUESTED]),
            ),
        ),
        Figure(
            name="sampling_runs_total",
            what="Sampling runs, by the length of their leases.",
            values=(
                ({"lease": "whole"}, counts.sampling_runs - counts.short_sampling_runs),
                ({"lease": "short"}, counts.short_sampling_runs),
            ),
            is_total=True,
        ),
        Figure.one(
            "idle_by_choice_total",
            "Devices that a round left idle while jobs waited that can run on them, summed over rounds.",
            counts.idle_by_choice,
            is_total=True,
        ),
        *(matching if counts.matchings else ()),
    )
