"""Bids: rows over gangs, each with the value of what the app would then hold (auction.md, section 1).

The rows of a bid are laid out along three axes: how many of the gangs up for renewal stay in place, how many GPUs come
on top, and how near the new gangs lie. Rows that another row makes useless are left out; a cap is never silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from am.agent.fairness import Valuer
from am.agent.finish_time import finish_time_s, split_evenly
from am.agent.views import AppView, GangAt, HeldGang, JobView, Surroundings
from themis.bids import AppReport, Bid, BidRow, Gang, GangDemand, Offer
from themis.cluster import Allocation, Level

ROW_CAP = 400
"""Rows a bid may hold; the cheapest bundles stay."""


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
    time_s = finish_time_s(app, [gang.at for gang in app.kept], around)
    return AppReport(
        app_id=app.app_id,
        round_id=round_id,
        rho=valuer.rho(time_s),
        t_shared_s=valuer.shared_s(time_s),
        t_ideal_s=valuer.ideal_s,
        demands=unmet_demands(app),
    )


def unmet_demands(app: AppView) -> tuple[GangDemand, ...]:
    """What the jobs of the current phase could use beyond the leases that go on.

    A job without a gang wants one. A job on a gang with room wants more only where growing saves more than a restart.
    """
    kept = {gang.job_id: gang for gang in app.kept}
    return tuple(
        demand for job in app.jobs if (demand := _demand_of(job, kept.get(job.job_id), app.restart_s)) is not None
    )


def make_bid(app: AppView, offer: Offer, around: Surroundings) -> Bid:
    """The app's bid on an offer: the value 1/rho of keeping what it keeps, and of that with every bundle on top."""
    valuer = Valuer.of(app, around)
    empty_value = valuer.value(finish_time_s(app, [gang.at for gang in app.kept], around))
    rows = (
        _row(bundle, valuer.value(finish_time_s(app, bundle.holds, around), bundle.switch_s), app)
        for bundle in _bundles(app, offer)
    )
    useful = _undominated(row for row in rows if row is not None and row.value > empty_value)
    return Bid(
        app_id=app.app_id,
        round_id=offer.round_id,
        empty_value=empty_value,
        rows=tuple(useful[:ROW_CAP]),
        rows_dropped=max(0, len(useful) - ROW_CAP),
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
    if held is None:
        least, most, near = shape.demand_min_gpus, shape.demand_max_gpus, Allocation()
    else:
        room = shape.demand_max_gpus - held.gpus.gpus
        if room < shape.gpus_per_task or not growth_pays(job, held.at, shape.demand_max_gpus, held.level, restart_s):
            return None
        least, most, near = shape.gpus_per_task, room, held.gpus
    return GangDemand(
        job_id=job.job_id,
        min_gpus=least,
        max_gpus=most,
        unit_gpus=shape.gpus_per_task,
        slowdown=job.slowdown,
        work_left_gpu_s=job.serial_work_s,
        held=near,
    )


# ---- bundles --------------------------------------------------------------------------------------------------------


def _bundles(app: AppView, offer: Offer) -> Iterator[_Bundle]:
    if not app.jobs:
        return
    renewable = app.renewable
    for staying in range(len(renewable), -1, -1):
        stays = renewable[:staying]
        switch_s = app.restart_s if staying < len(renewable) else 0.0
        yield from _with_new_gangs(app, offer, stays, switch_s)
    if len(app.held) >= len(app.jobs):
        yield from _grown(app, offer)


def _with_new_gangs(app: AppView, offer: Offer, stays: Sequence[HeldGang], switch_s: float) -> Iterator[_Bundle]:
    pinned = sum((gang.up for gang in stays), Allocation())
    holds = tuple(gang.at for gang in (*app.kept, *stays))
    if stays:
        yield _Bundle(holds, pinned, (), switch_s)
    without = len(app.jobs) - len(app.kept) - len(stays)
    shape = app.median_job.shape
    most = min(offer.free.gpus - pinned.gpus, without * shape.demand_max_gpus)
    room = _largest_gang_by_level(offer, pinned)
    for gpus in range(shape.demand_min_gpus, most + 1, shape.gpus_per_task):
        sizes = split_evenly(gpus, without, shape)
        for new in _layouts(sizes, app.jobs, room):
            yield _Bundle((*holds, *new), pinned, new, switch_s)


def _grown(app: AppView, offer: Offer) -> Iterator[_Bundle]:
    """Every job has a gang: kept gangs grow on their own machine, one after the other, in place of nothing else."""
    free = (offer.free - _renewable_within(app, offer)).by_machine()
    gangs = [gang.at for gang in app.kept]
    pinned = Allocation()
    for place, gang in enumerate(app.kept):
        job = next((job for job in app.jobs if job.job_id == gang.job_id), None)
        if job is None or len(gang.gpus.counts) != 1:
            continue
        machine = gang.gpus.counts[0][0]
        room = job.shape.usable_gpus(gang.gpus.gpus + free.get(machine, 0)) - gang.gpus.gpus
        if room <= 0 or not growth_pays(job, gang.at, gang.gpus.gpus + room, gang.level, app.restart_s):
            continue
        free[machine] -= room
        pinned = pinned + Allocation.of({machine: room})
        gangs[place] = GangAt(gang.gpus.gpus + room, max(gang.level, Level.MACHINE))
        yield _Bundle(tuple(gangs), pinned, (), app.restart_s)


def _renewable_within(app: AppView, offer: Offer) -> Allocation:
    mine = sum((gang.up for gang in app.renewable), Allocation())
    return mine if mine.within(offer.free) else Allocation()


def _largest_gang_by_level(offer: Offer, pinned: Allocation) -> dict[Level, int]:
    """The largest gang that the offer can hold at each level, less what stays; racks are not told apart."""
    slots = [count for counts in offer.slots.values() for count in counts] or [0]
    by_machine = (offer.free - pinned).by_machine() if pinned.within(offer.free) else {}
    total = sum(by_machine.values())
    largest = max(by_machine.values(), default=0)
    return {Level.SLOT: min(max(slots), largest), Level.MACHINE: largest, Level.RACK: total, Level.CLUSTER: total}


def _layouts(sizes: Sequence[int], jobs: Sequence[JobView], room: dict[Level, int]) -> Iterator[tuple[GangAt, ...]]:
    """Ways to lay gangs of these sizes, nearest first: all at one level, or the last ones at the next level."""
    classes = _level_classes(jobs)
    for place, level in enumerate(classes):
        farther = classes[place + 1] if place + 1 < len(classes) else None
        if any(size > 1 and size > room[level] for size in sizes):
            continue
        several = sum(size > 1 for size in sizes)
        for relaxed in range(max(1, several) if farther is not None else 1):
            yield tuple(
                GangAt(size, Level.SLOT if size == 1 else level if number < several - relaxed else farther or level)
                for number, size in enumerate(sizes)
            )
        if not several:
            return


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
    """Rows worth sending, cheapest first: none that costs as much as another of the same pins and is worth no more."""
    kept: list[BidRow] = []
    best: dict[tuple[Allocation, Level], float] = {}
    ordered = sorted(rows, key=lambda row: (row.gpus, -_nearness(row), -row.value, row.gangs, row.pinned.counts))
    for row in ordered:
        level = Level(_nearness(row))
        # Fewer or as many GPUs, no nearer, same pins, worth at least as much: this row cannot be chosen for its value.
        beaten = any(best.get((row.pinned, farther), 0.0) >= row.value for farther in Level if farther >= level)
        if not beaten:
            kept.append(row)
            best[row.pinned, level] = max(best.get((row.pinned, level), 0.0), row.value)
    return kept


def _nearness(row: BidRow) -> int:
    """The nearest level that a row insists on; CLUSTER when it takes GPUs anywhere."""
    return min((gang.within for gang in row.gangs), default=Level.CLUSTER)
