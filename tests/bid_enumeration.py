"""Every way to lay an app's gangs on a tiny cluster, as the measure of what the rows of a bid say."""

import itertools
from functools import cache

from am.agent.fairness import Valuer
from am.agent.finish_time import finish_time_s, split_evenly
from am.agent.views import GangAt
from rm_plugin.solvers.brute_force import place_all
from themis.bids import FreeMachine
from themis.cluster import Allocation, Level


def sub_allocations(free):
    """Every part of an allocation, the whole one too."""
    machines = [machine for machine, _ in free]
    for counts in itertools.product(*(range(count + 1) for _, count in free)):
        yield Allocation.of(dict(zip(machines, counts, strict=True)))


@cache
def gangs_within(free, unit):
    """Every gang, as an allocation in whole units, that these GPUs hold."""
    return tuple(gang for gang in sub_allocations(free) if gang and all(count % unit == 0 for _, count in gang))


def layouts(free, jobs, shape):
    """Every way to lay at most `jobs` gangs on these GPUs."""
    yield ()
    if not jobs:
        return
    for gang in gangs_within(free, shape.gpus_per_task):
        if shape.usable_gpus(gang.gpus) == gang.gpus:
            for rest in layouts(free - gang, jobs - 1, shape):
                if not rest or gang.counts >= rest[0].counts:
                    yield (gang, *rest)


def even_only(layout, free, jobs, shape):
    """True for layouts whose sizes are those of an even split of some GPUs."""
    sizes = tuple(sorted((gang.gpus for gang in layout), reverse=True))
    return sizes in {split_evenly(gpus, jobs, shape) for gpus in range(free.gpus + 1)}


def best_value(app, around, cluster, free, only=None):
    """The most that these GPUs could be worth to an app that holds nothing, by trying every layout (or `only` some).

    For clusters whose machines are one slot each.
    """
    valuer = Valuer.of(app, around)
    jobs, shape = len(app.jobs), app.median_job.shape
    best = 0.0
    for layout in set(layouts(free, jobs, shape)):
        if layout and only is not None and not only(layout, free, jobs, shape):
            continue
        levels = [cluster.level_of(gang) for gang in layout]
        gangs = [
            GangAt(gang.gpus, Level.SLOT if level is Level.MACHINE else level)
            for gang, level in zip(layout, levels, strict=True)
        ]
        best = max(best, valuer.value(finish_time_s(app, gangs, around)))
    return best


def best_row(bid, cluster, free):
    """The value of the best row that fits in these GPUs, or of none."""
    machines = tuple(
        FreeMachine(
            machine_id=machine.machine_id, rack_id=machine.rack_id, free_slots=(free.count(machine.machine_id),)
        )
        for machine in cluster.machines
    )
    fitting = [row.value for row in bid.rows if place_all(machines, {bid.app_id: row})]
    return max(fitting, default=bid.empty_value)
