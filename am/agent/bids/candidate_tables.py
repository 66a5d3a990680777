"""Tables of candidates: for each thing that may become of the held gangs, all candidates for new gangs on top.

Example: an app of two jobs holds one renewable gang. One table keeps that gang in place and adds up to one new gang; it
costs no restart. Another gives it up and asks for up to two new gangs, and costs a restart.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.candidates.enumeration import enumerate_candidates
from am.agent.candidates.gang_extension import GangExtension, gang_extensions
from am.agent.candidates.gang_kinds import GangKind, LocalitySensitivity, gang_kinds
from am.agent.candidates.search_space import SearchSpace
from am.agent.model.demands import parts_left
from am.agent.model.views import AppView, GangAt, HeldGang
from themis.bids import GangRequest, Offer
from themis.cluster import Allocation, Level
from themis.placement.gang_capacity import GangCapacity
from themis.values import Value, cached_property

Counts = NDArray[np.int64]


class Table(Value, frozen=True, dict=True, kw_only=True):
    """Candidates that share what becomes of the held gangs.

    Attributes:
        gangs: Gangs that the app holds in every row.
        pinned: GPUs on named machines that every row asks for.
        anywhere: Gangs anywhere that every row asks for.
        kinds: K kinds of new gangs.
        candidates: New gangs of each row, R rows by K kinds.
        switch_s: Seconds of restart that every row costs.
        in_place: Whether the rows only keep jobs where they are: they are worth no more than others.
        missing: Candidates that a complete table would have in addition.
    """

    gangs: tuple[GangAt, ...]
    pinned: tuple[Allocation, ...] = ()
    anywhere: tuple[GangRequest, ...] = ()
    kinds: tuple[GangKind, ...] = ()
    candidates: Counts
    switch_s: float = 0.0
    in_place: bool = False
    missing: int = 0

    def counts_of(self, gangs: Mapping[GangAt, int]) -> Counts:
        """The gangs that the app holds with each row, R rows by gangs."""
        counts = np.zeros((len(self.candidates), len(gangs)), dtype=np.int64)
        for gang, count in Counter(self.gangs).items():
            counts[:, gangs[gang]] += count
        for index, kind in enumerate(self.kinds):
            counts[:, gangs[kind.at]] += self.candidates[:, index]
        return counts

    @cached_property
    def gpus(self) -> Counts:
        """The GPUs that each row asks for."""
        fixed = sum([gang.gpus for gang in self.pinned]) + sum([gang.total_gpus for gang in self.anywhere])
        return fixed + self.candidates @ np.array([kind.at.gpus for kind in self.kinds], dtype=np.int64)

    def gangs_requested(self, kinds: Sequence[GangKind]) -> Counts:
        """The gangs that each row asks for, R rows by these kinds: `candidates` and `anywhere`."""
        index_of = {_request_key(kind): index for index, kind in enumerate(kinds)}
        counts = np.zeros((len(self.candidates), len(kinds)), dtype=np.int64)
        for index, kind in enumerate(self.kinds):
            counts[:, index_of[_request_key(kind)]] += self.candidates[:, index]
        for gang in self.anywhere:
            counts[:, index_of[gang.gpus, gang.unit_gpus, gang.within]] += gang.count
        return counts

    def pinned_on(self, machines: Sequence[str]) -> Counts:
        """GPUs that each row pins on each of these machines."""
        pinned: Counter[str] = Counter()
        for gang in self.pinned:
            pinned.update(dict(gang))
        counts = np.array([pinned[machine] for machine in machines], dtype=np.int64)
        return np.ones((len(self.candidates), 1), dtype=np.int64) * counts


def kinds_requested(tables: Sequence[Table]) -> list[GangKind]:
    """The distinct kinds that rows of these tables ask for."""
    kinds: dict[tuple[int, int, Level], GangKind] = {}
    for table in tables:
        for kind in table.kinds:
            kinds.setdefault(_request_key(kind), kind)
        for gang in table.anywhere:
            more = GangKind(GangAt(gang.gpus, Level.CLUSTER), gang.within, gang.unit_gpus, 0)
            kinds.setdefault(_request_key(more), more)
    return list(kinds.values())


def _request_key(kind: GangKind) -> tuple[int, int, Level]:
    return kind.at.gpus, kind.unit_gpus, kind.within


def tables_of(app: AppView, offer: Offer, capacity: GangCapacity) -> list[Table]:
    """The tables of a bid (docs/design/valuation.md says why these suffice); none for an app without jobs.

    First the table in which all gangs stay in place, then rows that keep some of them, then tables that cost a restart
    and pin only what grows. An app that holds nothing has the first table alone: all its gangs are new.

    Args:
        app: The app.
        offer: The offer.
        capacity: How many gangs fit into the offer's free GPUs.
    """
    if not app.jobs:
        return []
    renewable = app.renewable
    pinned = tuple(gang.renewable_gpus for gang in renewable)
    # The ResourceManager may not offer what the app believes to be renewable, and would refuse a bid that pins it.
    all_renewable = Allocation.sum_of(pinned)
    offered = all_renewable.within(offer.free)
    tables = [_all_stay(app, offer.free - all_renewable, pinned, capacity)] if offered else []
    tables += _some_stay(app, renewable) if offered else ()
    return [*tables, *_restarted(app, offer, capacity)]


_NOTHING_NEW: Counts = np.zeros((1, 0), dtype=np.int64)
"""One row without new gangs."""


def _all_stay(app: AppView, free: Allocation, pinned: tuple[Allocation, ...], capacity: GangCapacity) -> Table:
    """All gangs stay in place, and the renewable ones are `pinned`. New gangs are of the other GPUs, `free`."""
    gangs = tuple(gang.at for gang in app.held)
    new = len(app.jobs) - len(app.held)
    if not new:
        return Table(gangs=gangs, pinned=pinned, candidates=_NOTHING_NEW)
    if pinned:
        capacity = GangCapacity(free.by_machine(), capacity.slots, capacity.rack_of)
    kinds = gang_kinds(app, capacity)

    space = SearchSpace(
        kinds=kinds,
        max_gangs=new,
        max_gpus=free.gpus,
        jobs=app.jobs,
        tables=2 if pinned else 1,
        capacity=capacity,
    )
    candidates, missing = enumerate_candidates(space)
    return Table(gangs=gangs, pinned=pinned, kinds=kinds, candidates=candidates, missing=missing)


def _some_stay(app: AppView, renewable: Sequence[HeldGang]) -> Iterator[Table]:
    """The best renewable gangs stay, and nothing new is asked for.

    Such a row is worth as much as one that asks for the same gangs anywhere; a solver takes the first of equal rows.
    A gang for which slots matter does not stay: a row pins GPUs by machine, and cannot say that they are in one slot.
    """
    sensitivity = LocalitySensitivity.of(app)
    in_slots = {gang.gpus.gpus for gang in renewable if gang.level is Level.SLOT}
    slots_matter = {
        gpus for gpus in in_slots if not sensitivity.same_speed(GangAt(gpus, Level.SLOT), GangAt(gpus, Level.MACHINE))
    }
    most = len(renewable) - 1
    if slots_matter:
        matter = (gang.level is Level.SLOT and gang.gpus.gpus in slots_matter for gang in renewable[:most])
        most = next((index for index, matters in enumerate(matter) if matters), most)
    if not most:
        return
    kept = [gang.at for gang in app.kept]
    places, renewable_gpus = [gang.at for gang in renewable], [gang.renewable_gpus for gang in renewable]
    parts = [parts_left(app, (gang,)) if gang.renewable_gpus != gang.gpus else () for gang in renewable]
    for staying in range(most, 0, -1):
        gangs = (*kept, *places[:staying], *itertools.chain.from_iterable(parts[staying:]))
        pinned = tuple(renewable_gpus[:staying])
        yield Table(gangs=gangs, pinned=pinned, candidates=_NOTHING_NEW, switch_s=app.restart_s, in_place=True)


def _restarted(app: AppView, offer: Offer, capacity: GangCapacity) -> Iterator[Table]:
    """Tables that cost a restart: each extension of held gangs, with new gangs on top."""
    if not app.held:
        return
    extensions = gang_extensions(app, capacity)
    if not app.renewable:
        # The first extension, in which nothing grows and nothing is lost, is the table in which all gangs stay.
        extensions = extensions[1:]
    if not extensions:
        return
    kinds, tables = gang_kinds(app, capacity), len(extensions) + len(app.renewable[:1])
    known: dict[tuple[int, int], tuple[Counts, int]] = {}
    for extension in extensions:
        left = (
            offer.free.gpus
            - sum(gang.gpus for gang in extension.pinned)
            - sum(gang.gpus for gang in extension.anywhere)
        )
        new = len(app.jobs) - len(extension.gangs)
        if (new, left) not in known:
            space = SearchSpace(kinds=kinds, max_gangs=new, max_gpus=left, jobs=app.jobs, tables=tables)
            known[new, left] = enumerate_candidates(space)
        yield _table_of_extension(app, kinds, extension, *known[new, left])


def _table_of_extension(
    app: AppView, kinds: tuple[GangKind, ...], extension: GangExtension, candidates: Counts, missing: int
) -> Table:
    if extension.grown:
        # A gang grows only once every job has one.
        candidates = candidates[candidates.sum(axis=1) == len(app.jobs) - len(extension.gangs)]
    return Table(
        gangs=extension.gangs,
        pinned=extension.pinned,
        anywhere=extension.anywhere,
        kinds=kinds,
        candidates=candidates,
        switch_s=app.restart_s,
        missing=missing,
    )
