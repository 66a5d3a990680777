"""AlloX as Gavel decides it (OSDI'20, section 7.1, and its public scheduler), to compare with on the same instances.

Gavel's policy looks at idle workers only, since jobs that run are fixed. It fills the times of jobs on workers cell by
cell, appends them once for each position in the queue, multiplied by it, and solves the whole assignment with SciPy's
`linear_sum_assignment`. The time that a job has waited is added to its row, which changes no assignment. Here all jobs
are considered, where Gavel by default considers the oldest three tenths.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from rm_plugin.policies.allox.values import Snapshot


def gavel_total_s(snapshot: Snapshot) -> float:
    """Match all jobs with the idle machines of a snapshot, of which there must be one.

    Returns the sum over jobs of the time from the decision to the job's end.
    """
    idle = [machine for machine in snapshot.machines if machine.is_idle]
    jobs = snapshot.waiting
    times_s = np.zeros((len(jobs), len(idle)))
    for row, job in enumerate(jobs):
        for column, machine in enumerate(idle):
            times_s[row, column] = job.time_s(machine.type_name)
    waited_s = np.array([[snapshot.now_s - job.arrival_s] for job in jobs])
    cost = times_s
    for position in range(2, len(jobs) + 1):
        cost = np.concatenate((cost, position * times_s), axis=1)
    cost = cost + waited_s
    chosen = linear_sum_assignment(cost)
    return float(cost[chosen].sum() - waited_s.sum())
