"""From asks to rows of a bid: equal parts of rows are one object, which saves time here and in a solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from am.agent.growth import added_up
from am.agent.tables import Table
from themis.bids import BidRow, Gang
from themis.cluster import Allocation, Level

_Key = tuple[int, Level, int]
_Like = Callable[[int], Gang]


class RowMaker:
    """Makes the rows of one bid."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self._likes: dict[_Key, _Like] = {}
        self._columns: dict[int, list[tuple[int, _Key, _Like]]] = {}
        self._pinned: dict[int, Allocation] = {}

    def row(self, table: int, ask: int, value: float) -> BidRow:
        """The row of one ask of a table; gangs largest first, then farthest."""
        if table not in self._columns:
            self._prepare(table)
        this = self._tables[table]
        asks = this.asks[ask].tolist()
        if this.anywhere:
            gangs = self._beside(table, asks)
        else:
            gangs = tuple([like(asks[place]) for place, _, like in self._columns[table] if asks[place]])
        return BidRow(value=value, gangs=gangs, pinned=self._pinned[table], pinned_gangs=this.pinned)

    def _prepare(self, table: int) -> None:
        this = self._tables[table]
        keys = [(kind.at.gpus, kind.within, kind.unit_gpus) for kind in this.kinds]
        order = sorted(range(len(keys)), key=keys.__getitem__, reverse=True)
        self._columns[table] = [(place, keys[place], self._like(keys[place])) for place in order]
        self._pinned[table] = added_up(this.pinned)

    def _beside(self, table: int, asks: Sequence[int]) -> tuple[Gang, ...]:
        """The gangs of an ask and those that all rows of the table ask for; like ones count together."""
        counts = {key: asks[place] for place, key, _ in self._columns[table] if asks[place]}
        for gang in self._tables[table].anywhere:
            key = gang.gpus, gang.within, gang.unit_gpus
            counts[key] = counts.get(key, 0) + gang.count
        return tuple(self._like(key)(count) for key, count in sorted(counts.items(), reverse=True))

    def _like(self, key: _Key) -> _Like:
        """Makes so many gangs of a kind, the same number only once."""
        if key not in self._likes:
            gpus, within, unit_gpus = key
            made: dict[int, Gang] = {}

            def like(count: int) -> Gang:
                if count not in made:
                    made[count] = Gang(gpus=gpus, within=within, count=count, unit_gpus=unit_gpus)
                return made[count]

            self._likes[key] = like
        return self._likes[key]
