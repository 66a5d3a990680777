"""Extensions of gangs that an app keeps: by GPUs of their own machine, of their rack, or anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import field
from msgspec.structs import replace

from am.agent.candidates.gang_kinds import LocalitySensitivity
from am.agent.model.demands import extension_pays, part_left, usable_gpus
from am.agent.model.finish_time import job_time_s, longest_first
from am.agent.model.views import AppView, GangAt, HeldGang, JobView
from themis.bids import GangRequest
from themis.cluster import Allocation, Level
from themis.placement.gang_capacity import GangCapacity
from themis.values import Value

_MAX_SPREADS = 64
"""Choices of GPUs of a rack that are all tried; past it machines with most free GPUs come first."""

_MAX_TOGETHER = 200
"""Combinations of extensions of several gangs that are all tried; past it one gang is extended after the other."""


_ONE_AFTER_THE_OTHER = 60
"""Extensions that are tried if gangs are extended one after the other."""


class GangExtension(Value, frozen=True):
    """One case of how the kept gangs continue, each as it is or with more GPUs.

    Attributes:
        gangs: The gangs afterwards.
        pinned: GPUs on named machines that the app asks for.
        anywhere: GPUs anywhere that it asks for.
        grown: The number of gangs that grew and had to pay for it (`extension_pays`).
    """

    gangs: tuple[GangAt, ...]
    pinned: tuple[Allocation, ...] = ()
    anywhere: tuple[GangRequest, ...] = ()
    grown: int = 0


class _Base(Value, frozen=True):
    """A gang, or what is left of one, that may grow for its job.

    Attributes:
        job: The job.
        gpus: Its GPUs.
        at: What it counts as.
        restart_s: Seconds that a restart takes.
        must_pay: Whether it grows only if that pays.
        pinned: GPUs on named machines that the app asks for to complete its tasks.
    """

    job: JobView
    gpus: Allocation
    at: GangAt
    restart_s: float
    must_pay: bool
    pinned: Allocation = field(default_factory=Allocation)

    @property
    def extension_gpus(self) -> int:
        """GPUs that the job could use beyond those that it holds."""
        return max(0, self.job.shape.demand_max_gpus - self.gpus.gpus)

    @property
    def gpus_in_whole_tasks(self) -> int:
        """GPUs held in whole tasks."""
        return sum(count - count % self.job.shape.gpus_per_task for _, count in self.gpus)

    @property
    def may_grow(self) -> bool:
        """Whether more GPUs could help. False if even the largest gang on one machine would not pay."""
        if not self.extension_gpus:
            return False
        most = self.job.shape.demand_max_gpus
        return not self.must_pay or extension_pays(self.job, self.at, most, Level.MACHINE, self.restart_s)

    def with_gpus(self, gpus: int, level: Level) -> GangAt | None:
        """The gang of `gpus` usable GPUs at a level. Returns None unless it is larger, and pays if it must."""
        if gpus <= self.at.gpus or (
            self.must_pay and not extension_pays(self.job, self.at, gpus, level, self.restart_s)
        ):
            return None
        return replace(self.spanning(level), gpus=gpus)

    def spanning(self, level: Level) -> GangAt:
        """The gang as it would count at a level."""
        return GangAt(self.at.gpus, level, self.job.shape.gpus_per_task if level > Level.MACHINE else 0)


def gang_extensions(app: AppView, offered: GangCapacity) -> list[GangExtension]:
    """Extensions of the gangs that the app keeps and of the rest of renewable gangs. The first adds no GPU.

    Growing restarts a job. A gang whose leases continue grows only if that pays (`extension_pays`); the rest of a gang
    that lost GPUs restarts anyway. A gang that grows is at MACHINE level at best, since the agent does not know the
    slots of its GPUs.

    Example: a job of 1 to 4 GPUs with S = 1.2 within a machine and 2 within a rack holds two GPUs of m0. m0 offers one
    more GPU, and m1 in the same rack two. There are three extensions: to stay at a throughput of 2 / 1.2 = 1.7, to grow
    to 4 GPUs in the rack (4 / 2 = 2), and to pin the GPU of m0 (3 / 1.2 = 2.5).

    Args:
        app: The app.
        offered: The GPUs on offer.

    Returns:
        All combinations if there are at most `_MAX_TOGETHER`. Otherwise the gangs grow one after the other, the gang of
        most work first, each as far as it can before the next begins. In the first extension no gang grows.
    """
    sensitivity = LocalitySensitivity.of(app)
    extensions = [_extensions_of(base, gang, offered, sensitivity) for base, gang in _bases(app)]
    count = 1
    for mine in extensions:
        count *= len(mine)
    together = _one_after_the_other(extensions) if count > _MAX_TOGETHER else itertools.product(*extensions)
    sums = (_together(some) for some in together)
    free = Allocation.of(offered.free)
    return [
        extension
        for extension in sums
        if sum(gang.gpus for gang in extension.pinned) + sum(gang.gpus for gang in extension.anywhere) <= free.gpus
        and Allocation.sum_of(extension.pinned).within(free)
    ]


def _bases(app: AppView) -> list[tuple[_Base, HeldGang]]:
    """What the app keeps, with the gang that it belongs to; most work first."""
    jobs = {job.job_id: job for job in app.jobs}
    bases = []
    for gang in app.held:
        if gang.job_id in jobs and gang.gpus != gang.renewable_gpus:
            job = jobs[gang.job_id]
            at = part_left(gang, job.shape) if gang.renewable else gang.at
            bases.append(
                (_Base(job, gang.gpus - gang.renewable_gpus, at, app.restart_s, must_pay=not gang.renewable), gang)
            )
    return sorted(bases, key=lambda base: longest_first(base[0].job))


def _one_after_the_other(extensions: Sequence[Sequence[GangExtension]]) -> Iterator[tuple[GangExtension, ...]]:
    """Combinations in which all gangs before one have their last extension, and those after it did not grow."""
    done = [mine[0] for mine in extensions]
    yield tuple(done)
    each = max(1, _ONE_AFTER_THE_OTHER // len(extensions))
    for index, mine in enumerate(extensions[:_ONE_AFTER_THE_OTHER]):
        for number in range(min(each, len(mine) - 1), 0, -1):
            # Evenly over the extensions, the fastest last.
            done[index] = mine[len(mine) - 1 - (number - 1) * (len(mine) - 1) // each]
            yield tuple(done)


def _together(extensions: Sequence[GangExtension]) -> GangExtension:
    """Join the extensions of several gangs into one case."""
    if len(extensions) == 1:
        return extensions[0]
    return GangExtension(
        tuple([gang for extension in extensions for gang in extension.gangs]),
        tuple([gpus for extension in extensions for gpus in extension.pinned]),
        tuple([gang for extension in extensions for gang in extension.anywhere]),
        sum([extension.grown for extension in extensions]),
    )


def _extensions_of(
    base: _Base, gang: HeldGang, offered: GangCapacity, sensitivity: LocalitySensitivity
) -> list[GangExtension]:
    """Extensions of one gang: first to continue as it is, then with more GPUs, the fastest last."""
    stay = GangExtension((base.at,) if base.at.gpus else ())
    starts = list(_with_completed_tasks(base, offered.free))
    extensions = [
        extension
        for start in (base, *starts)
        if start.may_grow
        for extension in _extensions_from(start, offered, sensitivity)
    ]
    completed = [GangExtension((start.at,), pinned=(start.pinned,)) for start in starts if start.at.gpus]
    extensions += [(job_time_s(base.job, extension.gangs[0]), extension) for extension in completed]
    if gang.renewable:
        # It wins back exactly what it may lose. Then its slots are known: the same as before.
        extensions.append((job_time_s(base.job, gang.at), GangExtension((gang.at,), pinned=(gang.renewable_gpus,))))
    return [stay, *(extension for _, extension in sorted(extensions, key=lambda timed: -timed[0]))]


def _with_completed_tasks(base: _Base, free: Mapping[str, int]) -> Iterator[_Base]:
    """The rest of a gang with incomplete tasks, completed by free GPUs of some of its machines."""
    unit = base.job.shape.gpus_per_task
    lacking = [(machine, unit - count % unit) for machine, count in base.gpus if count % unit]
    lacking = [(machine, count) for machine, count in lacking if count <= free.get(machine, 0)]
    for some in range(1, len(lacking) + 1):
        for counts in itertools.combinations(lacking, some):
            more = Allocation(counts)
            at = replace(base.at, gpus=usable_gpus(base.job.shape, base.gpus + more))
            yield replace(base, gpus=base.gpus + more, at=at, pinned=more)


def _extensions_from(
    base: _Base, offered: GangCapacity, sensitivity: LocalitySensitivity
) -> Iterator[tuple[float, GangExtension]]:
    """Extensions of one gang on its own machine, in its rack, or anywhere, with the seconds that the job then takes."""
    own, unit = [machine for machine, _ in base.gpus], base.job.shape.gpus_per_task
    racks, far = {offered.rack_of.get(machine) for machine in own}, offered.level_with(own)
    near, in_rack, anywhere = (base.spanning(level) for level in (Level.MACHINE, Level.RACK, far))
    # If every job is equally fast anywhere, GPUs next to the gang have no extra value, unless they complete a task.
    if len(own) == 1 and not (sensitivity.same_speed(near, anywhere) and base.gpus_in_whole_tasks == base.gpus.gpus):
        counts = range(1, offered.free.get(own[0], 0) + 1)
        more = (Allocation(((own[0], count),)) for count in counts)
        yield from _extensions_to(base, max(base.at.level, Level.MACHINE), more)
    rack = racks.pop() if len(racks) == 1 else None
    if rack is not None and not sensitivity.same_speed(in_rack, anywhere):
        inside = {machine: count // unit for machine, count in offered.in_rack(rack).items()}
        yield from _extensions_to(base, Level.RACK, _spreads(inside, own, base.extension_gpus // unit, unit))
    yield from _extensions_anywhere(base, far, offered.most(unit, unit, Level.CLUSTER))


def _extensions_to(base: _Base, level: Level, more: Iterable[Allocation]) -> Iterator[tuple[float, GangExtension]]:
    """Seconds and extension for each of some GPUs by machine."""
    for gpus in more:
        at = base.with_gpus(usable_gpus(base.job.shape, base.gpus + gpus), level)
        if at is not None and gpus.gpus <= base.extension_gpus:
            yield job_time_s(base.job, at), GangExtension((at,), pinned=(base.pinned + gpus,), grown=int(base.must_pay))


def _extensions_anywhere(base: _Base, level: Level, max_units: int) -> Iterator[tuple[float, GangExtension]]:
    """Seconds and extension for each number of additional tasks, anywhere."""
    unit = base.job.shape.gpus_per_task
    pinned = (base.pinned,) if base.pinned else ()
    for units in range(1, min(base.extension_gpus // unit, max_units) + 1):
        at = base.with_gpus(
            base.job.shape.usable_gpus(base.gpus_in_whole_tasks + units * unit), max(level, base.at.level)
        )
        if at is not None:
            more = GangRequest(gpus=units * unit, within=Level.CLUSTER, unit_gpus=unit)
            yield job_time_s(base.job, at), GangExtension((at,), pinned, (more,), int(base.must_pay))


def _spreads(units: Mapping[str, int], own: Sequence[str], most: int, unit: int) -> Iterator[Allocation]:
    """Choices of up to `most` units from machines of the gang's rack."""
    count = 1
    for free in units.values():
        count *= min(free, most) + 1
    if count <= _MAX_SPREADS:
        choices: Iterable[tuple[int, ...]] = itertools.product(*(range(min(n, most) + 1) for n in units.values()))
    else:
        choices = _roomiest_first(units, own, most)
    for choice in choices:
        taken = {machine: count * unit for machine, count in zip(units, choice, strict=True) if count}
        # GPUs on the machine of a gang on one machine are another extension.
        if sum(choice) <= most and (len(own) > 1 or set(taken) - set(own)):
            yield Allocation.of(taken)


def _roomiest_first(units: Mapping[str, int], own: Sequence[str], most: int) -> Iterator[tuple[int, ...]]:
    """One choice for each number of units: from the gang's own machines, then from those with most free GPUs."""
    order = sorted(units, key=lambda machine: (machine not in own, -units[machine], machine))
    for wanted in range(1, min(most, sum(units.values())) + 1):
        taken, left = dict.fromkeys(units, 0), wanted
        for machine in order:
            taken[machine] = min(units[machine], left)
            left -= taken[machine]
        yield tuple(taken.values())
