"""All candidates of one bid as arrays: what each needs, which dominate which, and the row that each becomes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent import _candidates
from am.agent.bids.candidate_tables import Table, kinds_requested
from am.agent.bids.dominance import DominanceKey, Indices, one_step_variants, thinned
from am.agent.model.finish_time import pace_on
from am.agent.model.views import JobView
from themis.bids import BidRow, GangRequest
from themis.cluster import Allocation

Floats = NDArray[np.float64]
_NO_INDICES: Indices = np.zeros(0, dtype=np.int64)
_Request = tuple[tuple[GangRequest, ...], Allocation, tuple[Allocation, ...]]
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
        self.single_job = single is not None
        self.missing = sum([table.missing for table in tables])
        sizes = [len(table.candidates) for table in tables]
        self._starts = list(itertools.accumulate(sizes, initial=0))
        self.paces: Floats = np.ones((2, len(self))) if single is None else _paces(single, tables)
        self.switch_s = np.repeat(np.array([table.switch_s for table in tables], dtype=np.float64), sizes)
        self._gpus = np.concatenate([_NO_INDICES, *[table.gpus for table in tables]])
        self._needs = _needs(tables)
        self._harder, self._easier = _variant_pairs(tables, self._starts)
        # The candidate of each in-place table. `chosen` adds it to the undominated ones. The C function ignores
        # candidates of 0 GPUs, so these count as such there and are not sent twice.
        self._in_place_indices = [start for start, table in zip(self._starts, tables, strict=False) if table.in_place]
        self._gpus_to_prune = self._gpus.copy()
        self._gpus_to_prune[self._in_place_indices] = 0
        self._requests: dict[int, _Request] = {}

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
        undominated = np.empty(len(values), dtype=np.int64)
        pairs = self._harder, self._easier
        count = _candidates.undominated(
            values, gains, self._needs, self._gpus_to_prune, *pairs, empty_value, undominated
        )
        indices = undominated[:count]
        in_place = [index for index in self._in_place_indices if values[index] > empty_value][: cap // 4]
        if count > cap - len(in_place):
            indices = indices[thinned(self._needs[indices], gains[indices], self._gpus[indices], cap - len(in_place))]
        # A solver takes the first of equal rows: rows that keep jobs where they are come first.
        sent = [*in_place, *indices.tolist()]
        sent.sort(key=self._gpus.__getitem__)
        return sent, count + len(in_place)

    def row(self, index: int, value: float) -> BidRow:
        """The row of a candidate."""
        request = self._requests.get(index)
        if request is None:
            request = self._requests[index] = self._request_of(index)
        gangs, pinned, pinned_gangs = request
        return BidRow(value=value, gangs=gangs, pinned=pinned, pinned_gangs=pinned_gangs)

    def _request_of(self, index: int) -> _Request:
        """What a candidate asks for; gangs largest first, then at the loosest level; identical ones count together."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        table = self.tables[number]
        counts = {
            (kind.at.gpus, kind.within, kind.unit_gpus): count
            for kind, count in zip(table.kinds, table.candidates[index - self._starts[number]].tolist(), strict=True)
            if count
        }
        for gang in table.anywhere:
            key = gang.gpus, gang.within, gang.unit_gpus
            counts[key] = counts.get(key, 0) + gang.count
        gangs = tuple(
            [
                GangRequest(gpus=gpus, within=within, count=count, unit_gpus=unit)
                for (gpus, within, unit), count in sorted(counts.items(), reverse=True)
            ]
        )
        return gangs, Allocation.sum_of(table.pinned), table.pinned


def _paces(single: JobView, tables: Sequence[Table]) -> Floats:
    """S of the single job on each candidate, and the GPUs that it uses there; S is infinite where it cannot run."""
    gangs = [
        (*table.gangs, *[kind.at for kind, count in zip(table.kinds, row, strict=True) if count])
        for table in tables
        for row in table.candidates.tolist()
    ]
    paces = [pace_on(single, *gang) if gang else (1.0, 0) for gang in gangs]
    slowdowns = [slowdown if usable else np.inf for slowdown, usable in paces]
    return np.array([slowdowns, [usable or 1 for _, usable in paces]], dtype=np.float64)


def _variant_pairs(tables: Sequence[Table], starts: Sequence[int]) -> tuple[Indices, Indices]:
    """The pairs of `one_step_variants` in each table, as indices among all candidates: harder and easier ones."""
    harder, easier = [_NO_INDICES], [_NO_INDICES]
    for start, table in zip(starts, tables, strict=False):
        harder_here, easier_here = one_step_variants(table.kinds, table.candidates)
        harder.append(harder_here + start)
        easier.append(easier_here + start)
    return np.concatenate(harder), np.concatenate(easier)


def _needs(tables: Sequence[Table]) -> NDArray[np.int16]:
    """What the candidates need, in their order: gangs by the dominance key, then GPUs pinned on each machine."""
    kinds = kinds_requested(tables)
    requested = [table.gangs_requested(kinds) for table in tables]
    needed = DominanceKey(kinds).needs(np.concatenate(requested) if requested else np.zeros((0, 0), dtype=np.int64))
    others = [table for table in tables if not table.in_place]
    machines = sorted({machine for table in others for gang in table.pinned for machine, _ in gang})
    if not machines:
        return needed
    pinned = np.concatenate([table.pinned_on(machines) for table in tables])
    return np.ascontiguousarray(np.column_stack((needed, pinned.astype(needed.dtype))))
