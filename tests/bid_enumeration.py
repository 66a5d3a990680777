"""V of every bundle of a tiny cluster, by trying every way to divide it: the measure of what the rows of a bid say.

Written from the definition in `am/agent/bids/bidding.py` and from `finish_time_s`; otherwise it uses only
`extension_pays` of the agent. A bundle is a vector: the number of GPUs of each slot.
"""

import itertools
import math

import numpy as np

from am.agent.model.demands import extension_pays
from am.agent.model.fairness import Valuer
from am.agent.model.finish_time import finish_time_s
from am.agent.model.views import GangAt
from rm_plugin.solvers.brute_force import place_all
from themis.bids import FreeMachine
from themis.cluster import Level
from themis.values import Value


class Slots(Value, frozen=True):
    """The slots of some machines as positions of a vector: machine and number of each, its rack."""

    names: tuple
    racks: dict

    @classmethod
    def of(cls, offer, cluster):
        names = tuple((machine, slot) for machine, counts in sorted(offer.slots.items()) for slot in range(len(counts)))
        return cls(names, {machine.machine_id: machine.rack_id for machine in cluster.machines})

    def vector(self, offer):
        return tuple(offer.slots[machine][slot] for machine, slot in self.names)

    def by_machine(self, vector):
        counts = {}
        for (machine, _), count in zip(self.names, vector, strict=True):
            if count:
                counts[machine] = counts.get(machine, 0) + count
        return counts

    def level(self, vector):
        used = [name for name, count in zip(self.names, vector, strict=True) if count]
        if len(used) <= 1 or sum(vector) == 1:
            return Level.SLOT
        return self.level_of_machines({machine for machine, _ in used})

    def level_of_machines(self, machines):
        if len(machines) <= 1:
            return Level.MACHINE
        return Level.RACK if len({self.racks[machine] for machine in machines}) == 1 else Level.CLUSTER


def parts_of(vector):
    return itertools.product(*(range(count + 1) for count in vector))


def minus(one, other):
    return tuple(a - b for a, b in zip(one, other, strict=True))


def within(one, other):
    return all(a <= b for a, b in zip(one, other, strict=True))


class Enumeration:
    """V by bundle, as an array with an axis a slot."""

    def __init__(self, app, offer, cluster_view, cluster):
        self.app, self.cluster_view = app, cluster_view
        self.slots = Slots.of(offer, cluster)
        self.full = self.slots.vector(offer)
        self.valuer = Valuer.of(app, cluster_view)
        self.values = np.zeros(tuple(count + 1 for count in self.full))
        self.jobs = {job.job_id: job for job in app.jobs}
        self._times = {}
        self._farthest = (
            Level.RACK if len({self.slots.racks[machine] for machine, _ in self.slots.names}) == 1 else Level.CLUSTER
        )
        self._gangs = [
            (vector, self._counts_as(sum(vector), unit, self.slots.level(vector)))
            for vector in parts_of(self.full)
            for unit in sorted({job.shape.gpus_per_task for job in app.jobs})
            if any(self._is_gang(vector, job.shape) for job in app.jobs if job.shape.gpus_per_task == unit)
        ]
        self._try_everything()
        for axis in range(self.values.ndim):
            self.values = np.maximum.accumulate(self.values, axis=axis)

    def _is_gang(self, vector, shape):
        gpus = sum(vector)
        whole = all(count % shape.gpus_per_task == 0 for count in self.slots.by_machine(vector).values())
        return gpus > 0 and whole and shape.usable_gpus(gpus) == gpus

    def _counts_as(self, gpus, unit, level):
        """A gang at its level and at every farther one at which a gang like it could lie."""
        farthest = Level.SLOT if gpus == 1 else Level.MACHINE if gpus == unit else self._farthest
        levels = [each for each in Level if level <= each <= max(level, farthest)]
        return tuple(GangAt(gpus, each, unit if each > Level.MACHINE else 0) for each in levels)

    # ---- what is held ----

    def _try_everything(self):
        """Either every renewable gang stays in place, or a restart is paid and the won GPUs are divided again."""
        held, renewable = self.app.held, self.app.renewable
        for vectors in itertools.product(*(self._on_machines(gang.renewable_gpus) for gang in renewable)):
            left = self._less(self.full, vectors)
            if left is not None:
                self._try_new(tuple(gang.at for gang in held), (), left, 0, False, False)
        self._try_bases(held, (), self.full, bool(renewable), False)

    def _try_bases(self, bases, gangs, left, switch, kept_grew):
        if not bases:
            self._try_new(gangs, (), left, 0, switch, kept_grew)
            return
        (base, *rest) = bases
        stay = self._part(base)
        self._try_bases(rest, (*gangs, *stay), left, switch, kept_grew)
        if base.renewable_gpus and base.renewable_gpus != base.gpus:
            for back in self._on_machines(base.renewable_gpus):
                if within(back, left):
                    self._try_bases(rest, (*gangs, base.at), minus(left, back), True, kept_grew)
        for more in parts_of(left):
            grown = self._grown(base, more) if any(more) else None
            if grown is not None:
                kept = kept_grew or not base.renewable
                self._try_bases(rest, (*gangs, grown), minus(left, more), True, kept)

    def _usable(self, shape, by_machine):
        return shape.usable_gpus(sum(count - count % shape.gpus_per_task for count in by_machine.values()))

    def _part(self, base):
        if not base.renewable:
            return (base.at,)
        part = (base.gpus - base.renewable_gpus).by_machine()
        gpus = self._usable(self.jobs[base.job_id].shape, part)
        level = base.level if len(part) > 1 else min(base.level, Level.MACHINE)
        unit = self.jobs[base.job_id].shape.gpus_per_task
        return (GangAt(gpus, level, unit if level > Level.MACHINE else 0),) if gpus else ()

    def _grown(self, base, more):
        job, part = self.jobs[base.job_id], base.gpus - base.renewable_gpus
        if not part:
            return None
        total = part.by_machine()
        for machine, count in self.slots.by_machine(more).items():
            total[machine] = total.get(machine, 0) + count
        gpus, now = self._usable(job.shape, total), self._part(base)
        if sum(total.values()) > job.shape.demand_max_gpus or gpus <= (now[0].gpus if now else 0):
            return None
        now_level = now[0].level if now else Level.MACHINE if len(part.counts) == 1 else base.level
        level = max(now_level, self.slots.level_of_machines(set(total)))
        if not base.renewable and not extension_pays(job, base.at, gpus, level, self.app.restart_s):
            return None
        return GangAt(gpus, level, job.shape.gpus_per_task if level > Level.MACHINE else 0)

    def _on_machines(self, allocation):
        wanted = allocation.by_machine()
        return [vector for vector in parts_of(self.full) if self.slots.by_machine(vector) == wanted]

    def _less(self, left, vectors):
        for vector in vectors:
            if not within(vector, left):
                return None
            left = minus(left, vector)
        return left

    # ---- new gangs ----

    def _try_new(self, gangs, new, left, first, switch, all_must_run):
        count = len(gangs) + len(new)
        if not all_must_run or count == len(self.app.jobs):
            bundle = minus(self.full, left)
            value = self.valuer.value(self._time_s(gangs, new), self.app.restart_s if switch else 0.0)
            self.values[bundle] = max(self.values[bundle], value)
        if count < len(self.app.jobs):
            for place in range(first, len(self._gangs)):
                vector, gang = self._gangs[place]
                if within(vector, left):
                    self._try_new(gangs, (*new, gang), minus(left, vector), place, switch, all_must_run)

    def _time_s(self, held, new):
        """The least T, each new gang counting at one of its levels."""
        key = held, tuple(sorted(new, key=repr))
        if key not in self._times:
            every = (finish_time_s(self.app, (*held, *chosen), self.cluster_view) for chosen in itertools.product(*new))
            self._times[key] = min(every)
        return self._times[key]


def best_rows(bid, enumeration):
    """The value of the best row that each bundle contains, or of none: an array like `Enumeration.values`."""
    slots = enumeration.slots
    rows = sorted(bid.rows, key=lambda row: -row.value)
    best = np.full(enumeration.values.shape, bid.empty_value)
    for bundle in parts_of(enumeration.full):
        free = {}
        for (machine, _), count in zip(slots.names, bundle, strict=True):
            free.setdefault(machine, []).append(count)
        machines = tuple(
            FreeMachine(machine_id=machine, rack_id=slots.racks[machine], free_slots=tuple(counts))
            for machine, counts in free.items()
        )
        total = sum(bundle)
        for row in rows:
            if row.value <= best[bundle]:
                break
            if row.gpus <= total and place_all(machines, {bid.app_id: row}) is not None:
                best[bundle] = row.value
    return best


def best_product(tables):
    """The largest sum of logs over disjoint bundles: tables of V by bundle, all of one shape."""
    best = np.log(tables[0])
    for table in tables[1:]:
        logs, after = np.log(table), np.full(best.shape, -math.inf)
        for bundle in itertools.product(*map(range, best.shape)):
            cut = tuple(slice(0, count + 1) for count in bundle)
            after[bundle] = (best[cut] + np.flip(logs[cut])).max()
        best = after
    return float(best[tuple(size - 1 for size in best.shape)])
