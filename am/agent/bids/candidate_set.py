"""All candidates of one bid as arrays: what each needs, which dominate which, and the row that each becomes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent import _candidates
from am.agent.bids.candidate_tables import Table, kinds_requested
from am.agent.bids.dominance import DominanceKey, neighbours, thinned
from am.agent.candidates.gang_extension import added_up
from am.agent.model.finish_time import pace_on
from am.agent.model.views import JobView
from themis.bids import BidRow, Gang
from themis.cluster import Allocation

Floats = NDArray[np.float64]
_Request = tuple[tuple[Gang, ...], Allocation, tuple[Allocation, ...]]
"""Gangs anywhere, pinned GPUs, and the pinned gangs that these are."""


class CandidateSet:
    """The candidates of some tables, one after the other.

    Args:
        tables: The tables of one bid.
        single: The app's only job, if no candidate has more than one gang: such a job's T is work * S / GPUs, so jobs
            of one shape and S may share the set.

    Attributes:
        single_job: Whether that is so.
        paces: S of the single job on each candidate, and the GPUs that it uses there [2 x R]; ones for other apps.
        switch_s: Seconds of restart that each candidate costs [R].
        missing: Candidates that complete tables would have in addition.
    """

    def __init__(self, tables: Sequence[Table], single: JobView | None = None) -> None:
        self.tables = tables
        self.missing = sum([table.missing for table in tables])
        self._starts = list(itertools.accumulate([len(table.candidates) for table in tables], initial=0))
        self._requests: dict[int, _Request] = {}
        self.steady = [start for start, table in zip(self._starts, tables, strict=False) if table.steady]
        self._gpus = np.concatenate([table.gpus for table in tables]) if tables else np.zeros(0, dtype=np.int64)
        self._sought = self._gpus.copy()
        self._sought[self.steady] = 0
        self.switch_s = (
            np.repeat([table.switch_s for table in tables], [len(table.candidates) for table in tables])
            if tables
            else np.zeros(0)
        )
        self._needs = _needs(tables)
        pairs = [
            [place + start for place in neighbours(table.kinds, table.candidates)]
            for start, table in zip(self._starts, tables, strict=False)
        ]
        self._harder, self._easier = (
            np.concatenate(some) if pairs else np.zeros(0, dtype=np.int64)
            for some in (zip(*pairs, strict=True) if pairs else ((), ()))
        )
        self.single_job = single is not None
        self.paces: Floats = np.ones((2, len(self)))
        if single is not None:
            gangs = [
                (*table.gangs, *[kind.at for kind, count in zip(table.kinds, row, strict=True) if count])
                for table in tables
                for row in table.candidates.tolist()
            ]
            paces = [pace_on(single, *gang) if gang else (1.0, 0) for gang in gangs]
            slowdowns = [slowdown if usable else np.inf for slowdown, usable in paces]
            self.paces = np.array([slowdowns, [usable or 1 for _, usable in paces]], dtype=np.float64)

    def __len__(self) -> int:
        return self._starts[-1]

    def chosen(self, values: Floats, gains: Floats, empty_value: float, cap: int) -> tuple[list[int], int]:
        """The candidates to send, fewest GPUs first, and how many no other one dominates.

        A candidate is sent if it is worth more than the empty bundle and no other one dominates it: worth as much, and
        fitting wherever this one fits. Past the cap some more are left out (`dominance.thinned`).

        Args:
            values: V of each candidate.
            gains: What each gains over the empty bundle, as a logarithm.
            empty_value: V of the empty bundle.
            cap: How many may be sent.
        """
        kept = np.empty(len(values), dtype=np.int64)
        pairs = self._harder, self._easier
        many = _candidates.undominated(values, gains, self._needs, self._sought, *pairs, empty_value, kept)
        places = kept[:many]
        steady = [place for place in self.steady if values[place] > empty_value][: cap // 4]
        if many > cap - len(steady):
            places = places[thinned(self._needs[places], gains[places], self._gpus[places], cap - len(steady))]
        # A solver takes the first of equal rows: rows that keep jobs where they are come first.
        sent = [*steady, *places.tolist()]
        sent.sort(key=self._gpus.__getitem__)
        return sent, many + len(steady)

    def row(self, place: int, value: float) -> BidRow:
        """The row of a candidate."""
        asked = self._requests.get(place)
        if asked is None:
            asked = self._requests[place] = self._request_of(place)
        gangs, pinned, pinned_gangs = asked
        return BidRow(value=value, gangs=gangs, pinned=pinned, pinned_gangs=pinned_gangs)

    def _request_of(self, place: int) -> _Request:
        """What a candidate asks for; gangs largest first, then at the loosest level; identical ones count together."""
        number = int(np.searchsorted(self._starts, place, side="right")) - 1
        table = self.tables[number]
        counts = {
            (kind.at.gpus, kind.within, kind.unit_gpus): count
            for kind, count in zip(table.kinds, table.candidates[place - self._starts[number]].tolist(), strict=True)
            if count
        }
        for gang in table.anywhere:
            key = gang.gpus, gang.within, gang.unit_gpus
            counts[key] = counts.get(key, 0) + gang.count
        gangs = tuple(
            [
                Gang(gpus=gpus, within=within, count=count, unit_gpus=unit)
                for (gpus, within, unit), count in sorted(counts.items(), reverse=True)
            ]
        )
        return gangs, added_up(table.pinned), table.pinned


def _needs(tables: Sequence[Table]) -> NDArray[np.int16]:
    """What the candidates need, in their order: gangs by the dominance key, then GPUs pinned on each machine."""
    kinds = kinds_requested(tables)
    asked = [table.gangs_requested(kinds) for table in tables]
    needed = DominanceKey(kinds).needs(np.concatenate(asked) if asked else np.zeros((0, 0), dtype=np.int64))
    loose = [table for table in tables if not table.steady]
    machines = sorted({machine for table in loose for gang in table.pinned for machine, _ in gang})
    if not machines:
        return needed
    pinned = np.concatenate([table.pinned_on(machines) for table in tables])
    return np.ascontiguousarray(np.column_stack((needed, pinned.astype(needed.dtype))))
