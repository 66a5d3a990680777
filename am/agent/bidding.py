"""Bids: rows over gangs, each with the value of what the app would then hold (auction.md, section 1).

The rows of a bid are laid out along three axes: how many of the gangs up for renewal stay in place, how many GPUs come
on top, and how near the new gangs lie. Rows that another row makes useless are left out; a cap is never silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from am.agent.fairness import Valuer
from am.agent.finish_time import finish_time_s, split_evenly
from am.agent.views import AppView, GangAt, HeldGang, JobView, Surroundings
from themis.apps import JobShape
from themis.bids import AppReport, Bid, BidRow, Gang, GangDemand, Offer
from themis.cluster import Allocation, Level

ROW_CAP = 400
"""Rows a bid may hold; past it they are thinned out evenly, and those that only keep what is held all stay."""

_CUTS = 3
"""Into how many parts the gangs of one bundle are cut at most, to lie partly near and partly farther."""


@dataclass(frozen=True, slots=True)
class _Bundle:
    """A bundle before it has a value: every gang that the app would then hold, and what it asks for to get there."""

    holds: tuple[GangAt, ...]
    pinned: Allocation
    new: tuple[GangAt, ...]
    switch_s: float


def make_report(app: AppView, around: Surroundings, round_id: int) -> AppReport:
    """The answer to «what is your rho»: with the gangs whose leases go on, and the demand of the jobs without one."""
    valuer = Valuer.of(app, around)
    left = _parts_left(app, app.renewable)
    time_s = finish_time_s(app, [*(gang.at for gang in app.kept), *left], around)
    switch_s = app.restart_s if left else 0.0
    return AppReport(
        app_id=app.app_id,
        round_id=round_id,
        rho=valuer.rho(time_s, switch_s),
        t_shared_s=valuer.shared_s(time_s, switch_s),
        t_ideal_s=valuer.ideal_s,
        demands=unmet_demands(app),
    )


def unmet_demands(app: AppView) -> tuple[GangDemand, ...]:
    """What the jobs of the current phase could use beyond the leases that go on.

    A job without a gang wants one. A job on a gang with room wants more only where growing saves more than a restart.
    A job that may lose a part of its gang and can run on the rest wants to have it whole again.
    """
    held = {gang.job_id: gang for gang in app.held}
    return tuple(
        demand for job in app.jobs if (demand := _demand_of(job, held.get(job.job_id), app.restart_s)) is not None
    )


def make_bid(app: AppView, offer: Offer, around: Surroundings) -> Bid:
    """The app's bid on an offer: the value 1/rho of keeping what it keeps, and of that with every bundle on top."""
    valuer = Valuer.of(app, around)
    time_s = _timer(app, around)
    left = _parts_left(app, app.renewable)
    empty_value = valuer.value(time_s((*(gang.at for gang in app.kept), *left)), app.restart_s if left else 0.0)
    bundles = _bundles(app, offer, around)
    rows = (_row(bundle, valuer.value(time_s(bundle.holds), bundle.switch_s), app) for bundle in bundles)
    useful = _undominated(row for row in rows if row is not None and row.value > empty_value)
    sent = _thinned(useful)
    return Bid(
        app_id=app.app_id,
        round_id=offer.round_id,
        empty_value=empty_value,
        rows=tuple(sent),
        rows_dropped=len(useful) - len(sent),
    )


def growth_pays(job: JobView, gang: GangAt, gpus: int, level: Level, restart_s: float) -> bool:
    """True when moving a running job onto `gpus` GPUs at `level` ends it earlier by more than a restart costs twice.

    Twice, since the estimate of what is left is uncertain and the restart is not.
    """
    usable, used = job.shape.usable_gpus(gpus), job.shape.usable_gpus(gang.gpus)
    if usable <= used:
        return False
    now_s = job.serial_work_s * job.slowdown.at(gang.level) / used if used else float("inf")
    then_s = job.serial_work_s * job.slowdown.at(level) / usable
    return now_s - then_s > 2.0 * restart_s


def _demand_of(job: JobView, held: HeldGang | None, restart_s: float) -> GangDemand | None:
    shape = job.shape
    near = Allocation() if held is None else held.gpus - held.up
    if not shape.usable_gpus(near.gpus):
        near = Allocation()
    room = shape.demand_max_gpus - near.gpus
    if room < shape.gpus_per_task:
        return None
    if (
        held is not None
        and not held.renewable
        and not growth_pays(job, held.at, shape.demand_max_gpus, held.level, restart_s)
    ):
        return None
    return GangDemand(
        job_id=job.job_id,
        min_gpus=max(shape.gpus_per_task, shape.demand_min_gpus - near.gpus),
        max_gpus=room,
        unit_gpus=shape.gpus_per_task,
        slowdown=job.slowdown,
        work_left_gpu_s=job.serial_work_s,
        held=near,
    )


def _parts_left(app: AppView, gangs: Iterable[HeldGang]) -> tuple[GangAt, ...]:
    """What the app keeps of gangs that are up for renewal in part only, where a job can run on that."""
    shapes = {job.job_id: job.shape for job in app.jobs}
    parts = ((gang, gang.gpus - gang.up) for gang in gangs if gang.job_id in shapes)
    usable = ((gang, part, shapes[gang.job_id].usable_gpus(part.gpus)) for gang, part in parts)
    return tuple(
        GangAt(gpus, min(gang.level, Level.MACHINE) if len(part.counts) == 1 else gang.level)
        for gang, part, gpus in usable
        if gpus
    )


def _timer(app: AppView, around: Surroundings) -> Callable[[tuple[GangAt, ...]], float]:
    """`finish_time_s` of bundles, each computed once: a bundle is how many gangs it has of each size and S."""
    classes = _level_classes((*app.jobs, app.median_job)) if app.jobs else ()
    alike = {level: min((farthest for farthest in classes if farthest >= level), default=level) for level in Level}
    known: dict[tuple[GangAt, ...], float] = {}

    def time_s(gangs: tuple[GangAt, ...]) -> float:
        key = tuple(sorted((GangAt(gang.gpus, alike[gang.level]) for gang in gangs), key=_size_and_level))
        if key not in known:
            known[key] = finish_time_s(app, gangs, around)
        return known[key]

    return time_s


def _size_and_level(gang: GangAt) -> tuple[int, Level]:
    return -gang.gpus, gang.level


# ---- bundles --------------------------------------------------------------------------------------------------------


def _bundles(app: AppView, offer: Offer, around: Surroundings) -> Iterator[_Bundle]:
    if not app.jobs:
        return
    renewable = app.renewable
    for staying in range(len(renewable), -1, -1):
        stays = renewable[:staying]
        switch_s = app.restart_s if staying < len(renewable) else 0.0
        yield from _with_new_gangs(app, offer, stays, switch_s)
    if len(app.held) >= len(app.jobs):
        yield from _grown(app, offer, around)


def _with_new_gangs(app: AppView, offer: Offer, stays: Sequence[HeldGang], switch_s: float) -> Iterator[_Bundle]:
    pinned = sum((gang.up for gang in stays), Allocation())
    if not pinned.within(offer.free):
        # The ResourceManager does not offer what the app thinks is up: a row that pins it would cost the whole bid.
        return
    left = _parts_left(app, app.renewable[len(stays) :])
    holds = (*(gang.at for gang in (*app.kept, *stays)), *left)
    if stays:
        yield _Bundle(holds, pinned, (), switch_s)
    without = len(app.jobs) - len(app.kept) - len(stays) - len(left)
    shape = app.median_job.shape
    most = min(offer.free.gpus - pinned.gpus, without * shape.demand_max_gpus)
    room = _largest_gang_by_level(offer, pinned)
    for gpus in range(shape.demand_min_gpus, most + 1, shape.gpus_per_task):
        sizes = split_evenly(gpus, without, shape)
        for new in _layouts(sizes, app.jobs, room):
            yield _Bundle((*holds, *new), pinned, new, switch_s)


def _grown(app: AppView, offer: Offer, around: Surroundings) -> Iterator[_Bundle]:
    """Every job has a gang: kept gangs grow, the one with most work left first, then also the next, and so on.

    Each grows by the nearest free GPUs, on its own machine, then in its rack, then anywhere, as far as that pays. The
    GPUs are named by machine, since only there they lie near the gang: such rows are lossy, and there are few of them.
    """
    free = (offer.free - _renewable_within(app, offer)).by_machine()
    work_s = {job.job_id: job.serial_work_s for job in app.jobs}
    jobs = {job.job_id: job for job in app.jobs}
    gangs = {gang.job_id: gang.at for gang in app.kept}
    pinned = Allocation()
    for gang in sorted(app.kept, key=lambda gang: (-work_s.get(gang.job_id, 0.0), gang.job_id)):
        best = Allocation()
        for more, level in _growths(jobs[gang.job_id], gang, free, around) if gang.job_id in jobs else ():
            if not growth_pays(jobs[gang.job_id], gang.at, gang.gpus.gpus + more.gpus, level, app.restart_s):
                continue
            best, gangs[gang.job_id] = more, GangAt(gang.gpus.gpus + more.gpus, level)
            yield _Bundle(tuple(gangs.values()), pinned + more, (), app.restart_s)
        pinned = pinned + best
        free = {machine: count - best.count(machine) for machine, count in free.items()}


def _growths(
    job: JobView, gang: HeldGang, free: Mapping[str, int], around: Surroundings
) -> Iterator[tuple[Allocation, Level]]:
    """Ways for a gang to grow, nearest first: GPUs to add by machine, and the level that the whole gang then spans."""
    own = {machine for machine, _ in gang.gpus}
    racks = {around.rack_of.get(machine) for machine in own}
    near = {
        level: [machine for machine in sorted(free) if _distance(machine, own, racks, around) <= level]
        for level in (Level.MACHINE, Level.RACK, Level.CLUSTER)
    }
    before = 0
    for level, machines in near.items():
        more = _fill(machines, free, job.shape, job.shape.demand_max_gpus - gang.gpus.gpus, own)
        if more.gpus > before:
            before = more.gpus
            yield more, max(level, gang.level)


def _distance(machine: str, own: set[str], racks: set[str | None], around: Surroundings) -> Level:
    if machine in own:
        return Level.MACHINE
    return Level.RACK if racks == {around.rack_of.get(machine)} else Level.CLUSTER


def _fill(machines: Sequence[str], free: Mapping[str, int], shape: JobShape, room: int, own: set[str]) -> Allocation:
    """Up to `room` GPUs in whole tasks: from the gang's own machines first, then from those with most free GPUs."""
    taken: dict[str, int] = {}
    for machine in sorted(machines, key=lambda machine: (machine not in own, -free[machine], machine)):
        usable = min(free[machine], room - sum(taken.values()))
        taken[machine] = usable - usable % shape.gpus_per_task
    return Allocation.of(taken)


def _renewable_within(app: AppView, offer: Offer) -> Allocation:
    mine = sum((gang.up for gang in app.renewable), Allocation())
    return mine if mine.within(offer.free) else Allocation()


def _largest_gang_by_level(offer: Offer, pinned: Allocation) -> dict[Level, int]:
    """The largest gang that the offer can hold at each level, less what stays; racks are not told apart."""
    slots = [count for counts in offer.slots.values() for count in counts] or [0]
    by_machine = (offer.free - pinned).by_machine()
    total = sum(by_machine.values())
    largest = max(by_machine.values(), default=0)
    return {Level.SLOT: min(max(slots), largest), Level.MACHINE: largest, Level.RACK: total, Level.CLUSTER: total}


def _layouts(sizes: Sequence[int], jobs: Sequence[JobView], room: dict[Level, int]) -> Iterator[tuple[GangAt, ...]]:
    """Ways to lay gangs of these sizes: all at one level, or a last part of them at the next one.

    Not lossless: of many gangs only some parts are tried (`_CUTS`), and never more than two levels at once.
    """
    classes = _level_classes(jobs)
    for place, level in enumerate(classes):
        farther = classes[place + 1] if place + 1 < len(classes) else None
        if any(size > 1 and size > room[level] for size in sizes):
            continue
        several = sum(size > 1 for size in sizes)
        for near in _cuts(several) if farther is not None else (several,):
            yield tuple(
                GangAt(size, Level.SLOT if size == 1 else level if number < near else farther or level)
                for number, size in enumerate(sizes)
            )
        if not several:
            return


def _cuts(gangs: int) -> Iterator[int]:
    """How many gangs lie near: all, then evenly fewer, at least one."""
    parts = max(1, min(gangs, _CUTS))
    return (gangs - part * gangs // parts for part in range(parts))


def _level_classes(jobs: Sequence[JobView]) -> tuple[Level, ...]:
    """Levels that differ in S for some job; of levels alike the farthest, since it asks for least."""
    profiles = [tuple(job.slowdown.at(level) for job in jobs) for level in Level]
    return tuple(level for level in Level if level is Level.CLUSTER or profiles[level] != profiles[level + 1])


# ---- rows -----------------------------------------------------------------------------------------------------------


def _row(bundle: _Bundle, value: float, app: AppView) -> BidRow | None:
    if value <= 0.0:
        return None
    unit = app.median_job.shape.gpus_per_task
    counts: dict[tuple[int, Level], int] = {}
    for gang in bundle.new:
        # A single GPU lies within a slot wherever it is: ask for it anywhere.
        within = Level.CLUSTER if gang.gpus == 1 else gang.level
        counts[gang.gpus, within] = counts.get((gang.gpus, within), 0) + 1
    gangs = tuple(
        Gang(gpus=gpus, within=within, count=count, unit_gpus=unit)
        for (gpus, within), count in sorted(counts.items(), reverse=True)
    )
    return BidRow(value=value, gangs=gangs, pinned=bundle.pinned)


def _undominated(rows: Iterable[BidRow]) -> list[BidRow]:
    """Rows worth sending, cheapest first: none that another of the same pins beats."""
    kept: dict[Allocation, list[tuple[float, _Asked]]] = {}
    sent: list[BidRow] = []
    # A row that beats another comes before it: it has fewer GPUs, or as many that lie farther apart.
    ordered = sorted(rows, key=lambda row: (row.gpus, -_ease(row), -row.value, row.gangs, row.pinned.counts))
    for row in ordered:
        asked = _asked(row)
        rivals = kept.setdefault(row.pinned, [])
        if not any(value >= row.value and _fits_wherever(rival, asked) for value, rival in rivals):
            rivals.append((row.value, asked))
            sent.append(row)
    return sent


_Asked = tuple[tuple[int, int, Level], ...]
"""Gangs as (gangs up to and with these, GPUs each, level), largest first, nearest first."""


def _asked(row: BidRow) -> _Asked:
    total, asked = 0, []
    for gang in sorted(row.gangs, key=lambda gang: (-gang.gpus, gang.within)):
        total += gang.count
        asked.append((total, gang.gpus, gang.within))
    return tuple(asked)


def _fits_wherever(easy: _Asked, hard: _Asked) -> bool:
    """True when each gang of `easy` can take the place of one of `hard`: it is no larger and asks for no nearer one.

    Both are compared gang by gang in order, which decides it exactly as long as larger gangs lie nearer.
    """
    place = 0
    for total, gpus, level in easy:
        while place < len(hard):
            if hard[place][1] < gpus or hard[place][2] > level:
                return False
            if hard[place][0] >= total:
                break
            place += 1
        else:
            return False
    return True


def _thinned(rows: list[BidRow]) -> list[BidRow]:
    """At most ROW_CAP of the rows, in the same order: cheap and dear ones alike, and what is held above all."""
    if len(rows) <= ROW_CAP:
        return rows
    staying = [number for number, row in enumerate(rows) if not row.gangs]
    others = [number for number, row in enumerate(rows) if row.gangs]
    first = _spread(staying, ROW_CAP // 2)
    return [rows[number] for number in sorted((*first, *_spread(others, ROW_CAP - len(first))))]


def _spread(numbers: list[int], most: int) -> list[int]:
    """At most so many of the numbers, evenly from the last one down."""
    if len(numbers) <= most:
        return numbers
    return [numbers[-1 - place * len(numbers) // most] for place in range(most)]


def _ease(row: BidRow) -> int:
    """How far apart a row lets its gangs lie, all added up."""
    return sum(gang.within * gang.count for gang in row.gangs)
