"""Why a job waits: the answer that AlloX' own decision gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from rm_plugin.policies.allox.decision import AlloxDecision, Place
from rm_plugin.policies.allox.values import Snapshot
from themis.values import Value


class Explanation(Value, frozen=True, kw_only=True):
    """Why a job did not start.

    Attributes:
        text: One sentence for users, without times: `place` has when the job is expected to start.
        rank: The user's rank by progress, from 1, among `users` users; 0 if no matching was made.
        users: Users with a waiting job.
        progress: The user's progress.
        considered: Users that the last matching let in.
        widening_steps: How often more users were let in.
        place: The job's place in the last matching that it was part of; None if it was in none.
        available_s: When the machine that it awaits is expected to be free.
    """

    text: str
    rank: int = 0
    users: int = 0
    progress: float = 0.0
    considered: int = 0
    widening_steps: int = 0
    place: Place | None = None
    available_s: float = math.nan


def explain(
    decision: AlloxDecision, snapshot: Snapshot, job_id: str, names: Mapping[str, str] = MappingProxyType({})
) -> Explanation:
    """Explain what a decision did with a job of its snapshot.

    Args:
        decision: What was decided.
        snapshot: What it was decided on.
        job_id: The job.
        names: Names of machines for the text, by id; a machine without one is named by its id.
    """
    started = next((start for start in decision.starts if start.job.job_id == job_id), None)
    if started is not None:
        return Explanation(text=f"{job_id} starts on {names.get(started.machine_id, started.machine_id)}")
    job = next((each for each in snapshot.waiting if each.job_id == job_id), None)
    if job is None:
        return Explanation(text=f"{job_id} does not wait: it runs, has ended, or its samples are not complete")
    if not any(machine.type_name in job.configurations for machine in snapshot.machines):
        return Explanation(text=f"{job_id} waits: no machine of a type that it can run on is in the cluster")
    if not decision.solves:
        return Explanation(text=f"{job_id} waits: no machine is idle")
    last = decision.solves[-1]
    ranks = {user: place for place, (user, _) in enumerate(last.ranked_users, start=1)}
    place = next((solve.places[job_id] for solve in reversed(decision.solves) if job_id in solve.places), None)
    available_s = math.nan
    who = f"{job.user} is number {ranks[job.user]} of {len(ranks)} users by progress"
    if place is not None:
        machine = next(each for each in snapshot.machines if each.machine_id == place.machine_id)
        available_s = max(machine.available_s, snapshot.now_s)
        text = f"{job_id} waits for {names.get(place.machine_id, place.machine_id)}; {who}"
    else:
        text = f"{job_id} waits: {who}, and the {last.considered} with the least progress go first"
    return Explanation(
        text=text,
        rank=ranks[job.user],
        users=len(ranks),
        progress=dict(last.ranked_users)[job.user],
        considered=last.considered,
        widening_steps=last.widening.bit_length() - 1,
        place=place,
        available_s=available_s,
    )
