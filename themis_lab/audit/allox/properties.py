"""What must hold for the matching and the decisions of AlloX. A property returns its violations."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from rm_plugin.policies.allox.decision import decide, match_jobs, places_of
from rm_plugin.policies.allox.progress import ProgressLedger
from rm_plugin.policies.allox.values import Job, UserState
from themis_lab.audit.allox.instances import AlloxCase, machine_at
from themis_lab.audit.case import same

_MAX_STARTS = 150
"""Starts after which `starvation` ends."""

_MAX_COMPARED = 20_000
"""Brute force tries this many assignments at most."""


def optimality(case: AlloxCase, _rng: random.Random) -> list[str]:
    """The total equals that of brute force. Instances too large for brute force are skipped."""
    if len(case.machines) ** len(case.jobs) > _MAX_COMPARED:
        return []
    total_s = match_jobs(case.jobs, case.machines, case.now_s).total_s
    least_s = _brute_force_s(case)
    return [] if same(total_s, least_s) else [f"the total is {total_s!r} s, by brute force {least_s!r} s"]


def certificate(case: AlloxCase, _rng: random.Random) -> list[str]:
    """The result is certified, and says so truly: each machine leaves its last offered position free, or needs none.

    For example, a machine that was offered three positions and runs two jobs shows that a fourth would not help.
    """
    matching = match_jobs(case.jobs, case.machines, case.now_s)
    findings = [] if matching.is_certified else ["the matching is not certified"]
    for place, (queue, offered) in enumerate(zip(matching.queues, matching.positions_offered, strict=True)):
        if len(queue) > offered:
            findings.append(f"machine {place} runs {len(queue)} jobs of {offered} positions offered")
    return findings


def conservation(case: AlloxCase, _rng: random.Random) -> list[str]:
    """Each job has one place, on a machine that runs it, and each machine's jobs follow each other shortest first."""
    matching = match_jobs(case.jobs, case.machines, case.now_s)
    placed = Counter(job for queue in matching.queues for job in queue)
    findings = [f"job {job} has {placed[job]} places" for job in range(len(case.jobs)) if placed[job] != 1]
    for machine, queue in zip(case.machines, matching.queues, strict=True):
        times = [case.jobs[job].time_s(machine.type_name) for job in queue]
        if times != sorted(times) or not all(map(math.isfinite, times)):
            findings.append(f"{machine.machine_id} runs jobs of {times} s in this order")
    ends = places_of(case.jobs, case.machines, matching, case.now_s).values()
    total_s = math.fsum(place.end_s - case.now_s for place in ends)
    if not same(total_s, matching.total_s):
        findings.append(f"ends add up to {total_s!r} s, the total is {matching.total_s!r} s")
    return findings


def decisions(case: AlloxCase, _rng: random.Random) -> list[str]:
    """A decision starts waiting jobs, each once, on idle machines that run them, and stays idle only if all agree.

    No user with more progress than another is let in before it.
    """
    decision = decide(case.snapshot, case.alpha)
    idle = {each.machine_id: each.type_name for each in case.machines if each.is_idle}
    jobs = Counter(start.job.job_id for start in decision.starts)
    machines = Counter(start.machine_id for start in decision.starts)
    findings = [f"{name} starts {count} times" for name, count in (jobs + machines).items() if count > 1]
    findings += [
        f"{start.job.job_id} starts on {start.machine_id}, which is busy or cannot run it"
        for start in decision.starts
        if idle.get(start.machine_id) != start.type_name or start.type_name not in start.job.configurations
    ]
    if decision.solves:
        first = decision.solves[0]
        progress = [case.users.get(user, UserState()).progress for user, _ in first.ranked_users]
        let_in = {user for user, _ in first.ranked_users[: first.considered]}
        if progress != sorted(progress) or {job.user for job in case.jobs if job.job_id in first.places} != let_in:
            findings.append(f"users are not let in by their progress; {case.users_text}")
    if decision.solves and len(decision.starts) < len(idle) and len(decision.starts) < len(case.jobs):
        last = decision.solves[-1]
        if last.considered < len(last.ranked_users):
            findings.append("a machine stays idle although some users were not let in")
    return findings


def determinism(case: AlloxCase, rng: random.Random) -> list[str]:
    """The decision does not depend on the order of jobs, machines and users."""
    jobs, machines, users = list(case.jobs), list(case.machines), list(case.users.items())
    for entries in (jobs, machines, users):
        rng.shuffle(entries)
    turned = replace(case, jobs=tuple(jobs), machines=tuple(machines), users=dict(users))
    if decide(case.snapshot, case.alpha) == decide(turned.snapshot, case.alpha):
        return []
    return [f"jobs, machines and users in another order give another decision; {case.users_text}"]


def starvation(case: AlloxCase, _rng: random.Random) -> list[str]:
    """Under overload no user waits for ever: jobs are replaced as they start, and every user runs again in time.

    Applies to instances that let one user in at a time and whose jobs run on all types. A user with nothing running has
    the least progress. It goes first once the machine that it waits for is free, after users who started longer ago. So
    it may wait for one job per user, and one more that runs already.
    """
    types = {machine.type_name for machine in case.machines}
    users = sorted({job.user for job in case.jobs})
    if case.alpha * len(users) > 1.0 or len(users) < 2 or any(types - job.configurations.keys() for job in case.jobs):
        return []
    limit_s = (len(users) + 1) * max(each.time_s for job in case.jobs for each in job.configurations.values())
    ledger, now_s, made = ProgressLedger(), case.now_s, 0
    machines = {each.machine_id: machine_at(each.machine_id, each.type_name, 0.0, now_s) for each in case.machines}
    running: dict[str, tuple[float, Job]] = {}
    idle_since_s = dict.fromkeys(users, now_s)
    waiting = {job.job_id: job for job in case.jobs}
    while made < _MAX_STARTS:
        view = replace(
            replace(case, now_s=now_s, jobs=tuple(waiting.values()), machines=tuple(machines.values())).snapshot,
            users=ledger.users(),
        )
        for start in decide(view, case.alpha).starts:
            made += 1
            del waiting[start.job.job_id]
            again = replace(start.job, job_id=f"{start.job.user}-{made:04}", arrival_s=now_s)
            waiting[again.job_id] = again
            end_s = now_s + start.job.time_s(start.type_name)
            running[start.machine_id] = end_s, start.job
            ledger.start(start.job.job_id, start.job.user, start.value, now_s)
            machines[start.machine_id] = machine_at(start.machine_id, start.type_name, end_s, now_s)
        busy = {job.user for _, job in running.values()}
        for user in users:
            if user in busy:
                idle_since_s[user] = now_s
            elif now_s - idle_since_s[user] > limit_s:
                return [f"{user} has run nothing for {now_s - idle_since_s[user]:g} s; at most {limit_s:g} s may pass"]
        machine_id = min(running, key=lambda name: (running[name][0], name))
        now_s, job = running.pop(machine_id)
        ledger.end(job.job_id)
        machines[machine_id] = machine_at(machine_id, machines[machine_id].type_name, now_s, now_s)
    return []


def _brute_force_s(case: AlloxCase) -> float:
    """The least total over all assignments; on each machine the shortest job goes first."""
    least_s = math.inf
    free_s = [0.0 if each.is_idle else max(0.0, each.available_s - case.now_s) for each in case.machines]
    for assignment in itertools.product(range(len(case.machines)), repeat=len(case.jobs)):
        total_s = 0.0
        for place, machine in enumerate(case.machines):
            at_s = free_s[place]
            own = [
                job.time_s(machine.type_name)
                for job, where in zip(case.jobs, assignment, strict=True)
                if where == place
            ]
            for time_s in sorted(own):
                at_s += time_s
                total_s += at_s
        least_s = min(least_s, total_s)
    return least_s


Check = Callable[[AlloxCase, random.Random], list[str]]

PROPERTIES: Mapping[str, Check] = {
    "optimality": optimality,
    "certificate": certificate,
    "conservation": conservation,
    "decisions": decisions,
    "determinism": determinism,
    "starvation": starvation,
}
"""Properties by name, in the order in which they are checked."""
