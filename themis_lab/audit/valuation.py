"""The value of a bundle by an app's own rows: the best row that the bundle contains (free disposal)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from themis.bids import Bid, FreeMachine, Market, PlacedGang
from themis_lab.audit.case import Case, value_won


class BidValuer:
    """Values bundles of one case's market, and caches the results."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._racks = {machine.machine_id: machine for machine in case.market.machines}
        self._known: dict[tuple[str, tuple[FreeMachine, ...]], float] = {}

    def value(self, bid: Bid, gangs: Iterable[PlacedGang]) -> float:
        """The bidder's value of the GPUs of these gangs, whichever bidder won them, in addition to what it keeps."""
        bundle = self._machines_of(gangs)
        key = (bid.app_id, bundle)
        if key not in self._known:
            self._known[key] = self._best_row(bid, bundle)
        return self._known[key]

    def _best_row(self, bid: Bid, bundle: tuple[FreeMachine, ...]) -> float:
        if not bundle or not bid.rows:
            return bid.empty_value
        alone = Market(machines=bundle, bids=(bid,), empty_bundle=self._case.market.empty_bundle)
        return value_won(bid, self._case.solve(alone))

    def _machines_of(self, gangs: Iterable[PlacedGang]) -> tuple[FreeMachine, ...]:
        """The bundle as a cluster.

        GPUs of a gang within a slot share that slot, and so do those of a machine with one slot. For other GPUs the
        slot is unknown, so each counts as a slot of its own.
        """
        loose: Counter[str] = Counter()
        in_slot: Counter[tuple[str, int]] = Counter()
        for gang in gangs:
            for machine_id, count in gang.gpus:
                if gang.slot is not None:
                    in_slot[machine_id, gang.slot] += count
                elif len(self._racks[machine_id].free_slots) == 1:
                    in_slot[machine_id, 0] += count
                else:
                    loose[machine_id] += count
        on = sorted({*loose, *(machine_id for machine_id, _ in in_slot)})
        return tuple(
            FreeMachine(
                machine_id=machine_id,
                rack_id=self._racks[machine_id].rack_id,
                free_slots=(*self._in_slots(in_slot, machine_id), *([1] * loose[machine_id])),
            )
            for machine_id in on
        )

    @staticmethod
    def _in_slots(in_slot: Counter[tuple[str, int]], machine_id: str) -> tuple[int, ...]:
        return tuple(sorted(count for (machine, _), count in in_slot.items() if machine == machine_id))
