"""From asks to rows of a bid: equal parts of rows are one object, which saves time here and in a solver."""

from __future__ import annotations

from collections.abc import Sequence

from am.agent.tables import Table
from themis.bids import BidRow, Gang
from themis.cluster import Allocation, Level


class RowMaker:
    """Makes the rows of one bid."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._pinned = [sum(table.pinned, Allocation()) for table in tables]
        self._gangs: dict[tuple[int, Level, int, int], Gang] = {}

    def row(self, table: int, ask: int, value: float) -> BidRow:
        """The row of one ask of a table; gangs largest first, then farthest."""
        this = self._tables[table]
        counts: dict[tuple[int, Level, int], int] = {}
        for kind, count in zip(this.kinds, this.asks[ask].tolist(), strict=True):
            if count:
                counts[kind.at.gpus, kind.within, kind.unit_gpus] = count
        for gang in this.anywhere:
            key = gang.gpus, gang.within, gang.unit_gpus
            counts[key] = counts.get(key, 0) + gang.count
        gangs = tuple(self._gang(*key, count) for key, count in sorted(counts.items(), reverse=True))
        return BidRow(value=value, gangs=gangs, pinned=self._pinned[table], pinned_gangs=this.pinned)

    def _gang(self, gpus: int, within: Level, unit_gpus: int, count: int) -> Gang:
        key = gpus, within, unit_gpus, count
        if key not in self._gangs:
            self._gangs[key] = Gang(gpus=gpus, within=within, count=count, unit_gpus=unit_gpus)
        return self._gangs[key]
