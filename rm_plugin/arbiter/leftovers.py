"""Leftovers: GPUs that the auction did not hand out go to whoever can use them (themis.md, section 3, step 5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

from msgspec import field
from msgspec.structs import replace

from rm_plugin.arbiter.placement import Standing, place_in, place_on_own
from rm_plugin.arbiter.seeds import child_digests
from rm_plugin.solvers.packing import Room
from themis.apps import Slowdown
from themis.bids import GangDemand, PlacedGang
from themis.cluster import Allocation, Level
from themis.errors import InputError
from themis.values import Value


class Claim(Value, frozen=True, kw_only=True):
    """What an app could still use. `demands` are unmet: what the auction gave is taken off by the caller.

    Attributes:
        app_id: The app.
        demands: One a job, the job to serve first in front.
        renewable: Free GPUs that the app held until now: taken there, its containers go on without a restart.
        bid: Whether the app took part in the auction; those that did not come first.
    """

    app_id: str
    demands: tuple[GangDemand, ...]
    renewable: Allocation = field(default_factory=Allocation)
    bid: bool = False


def share_leftovers(room: Room, claims: Sequence[Claim], rng_seed: int) -> dict[str, dict[str, PlacedGang]]:
    """Hand out free GPUs until no claim can use another one.

    First the apps that did not bid, then the bidders. Among each, in random order: every app renews what it held; then
    they take turns, a job a turn, at what has least S for the throughput it gives (`placement.place_gang`). A job that
    got less than its largest gang grows later while that makes it faster.

    The order is drawn by app from the seed, so it does not depend on the order of the claims.

    Args:
        room: Free GPUs, which are taken; with machines without a free GPU where a demand's `held` lies.
        claims: One an app.
        rng_seed: The round's seed.

    Returns:
        Gangs by job by app, only apps that got something. A grown gang is one gang; GPUs that the demand says are
        `held` are not repeated, but its level counts them.
    """
    ids = [claim.app_id for claim in claims]
    if len(set(ids)) != len(ids):
        raise InputError("two claims of one app on the leftovers", value=sorted(ids))
    granted: dict[str, dict[str, PlacedGang]] = {}
    hopeless: set[_Kind] = set()
    for bid in (False, True):
        if room.gpus:
            queues = _serve(room, [claim for claim in claims if claim.bid is bid], rng_seed, hopeless)
            granted |= {queue.claim.app_id: gangs for queue in queues if (gangs := queue.gangs())}
    return dict(sorted(granted.items()))


def _serve(room: Room, claims: Sequence[Claim], rng_seed: int, hopeless: set[_Kind]) -> Collection[_Queue]:
    """Hand out what such claims can use, and tell what each of them got that had a turn."""
    # What needs more GPUs than are left finds no place, and room only shrinks: such claims need no turn, and no draw.
    # Most of what comes free at once is renewed, and what waits without hope is most of all claims.
    renewing = [claim for claim in claims if claim.renewable.counts and _may_be_served(claim, room.gpus)]
    queues = {claim.app_id: _Queue(claim, hopeless) for claim in _drawn(renewing, rng_seed)}
    for queue in queues.values():
        queue.renew(room)
    if room.gpus:
        others = [claim for claim in claims if not claim.renewable.counts and _may_be_served(claim, room.gpus)]
        _take_turns(room, _drawn([*renewing, *others], rng_seed), queues, hopeless)
    return queues.values()


def _drawn(claims: Collection[Claim], rng_seed: int) -> list[Claim]:
    """Claims in the order that is drawn for their apps."""
    ids = [claim.app_id for claim in claims]
    # No two are of one app, so no claims are compared.
    draws = zip(child_digests(rng_seed, ("leftovers",), ids), ids, claims, strict=True)
    return [claim for _, _, claim in sorted(draws)]


def _may_be_served(claim: Claim, gpus: int) -> bool:
    # Asked of every claim; `any` over a generator takes three times as long.
    for demand in claim.demands:  # noqa: SIM110
        if demand.min_gpus <= gpus:
            return True
    return False


def _take_turns(room: Room, claims: Iterable[Claim], queues: dict[str, _Queue], hopeless: set[_Kind]) -> None:
    """One job a turn, round after round; a queue that cannot use any GPU any more drops out.

    `queues` are those of apps that had something to renew; those of others are added as their first turn comes.
    """
    waiting: deque[_Queue] = deque()
    for claim in claims:
        if not room.gpus:
            return
        queue = queues.get(claim.app_id)
        if queue is None:
            queue = queues[claim.app_id] = _Queue(claim, hopeless)
        if queue.step(room):
            waiting.append(queue)
    while waiting and room.gpus:
        queue = waiting.popleft()
        if queue.step(room):
            waiting.append(queue)


_Kind = tuple[int, int, int, float, Slowdown]
"""Smallest and largest gang, unit, throughput to exceed and S of a demand: they tell if a new gang finds a place."""


class _Queue:
    """One app's jobs with the gangs they got here so far.

    `hopeless` is shared by all queues of a room: demands for a new gang that found no place. Room only shrinks, so
    none of that kind ever will.
    """

    def __init__(self, claim: Claim, hopeless: set[_Kind]) -> None:
        self.claim = claim
        self._hopeless = hopeless
        self._got: dict[int, PlacedGang] = {}
        # For the same reason a job that finds nothing to grow by now never will: each fails once at most.
        self._first_open = 0

    def gangs(self) -> dict[str, PlacedGang]:
        """Gang by job id, jobs in the claim's order."""
        return {self.claim.demands[job].job_id: self._got[job] for job in sorted(self._got)}

    def renew(self, room: Room) -> None:
        """Place jobs, in order, on the GPUs that the app held, as far as these are free."""
        renewable, demands = self.claim.renewable, self.claim.demands
        if len(demands) == 1 and not demands[0].held.counts:
            only = place_on_own(room, renewable, demands[0])
            if only is not None:
                self._accept(room, 0, only)
            return
        own = room.part(renewable.by_machine())
        for job in range(len(demands)):
            if not own.gpus:
                return
            gang = self._next_gang(own, job)
            if gang is not None:
                own.remove(gang)
                self._accept(room, job, gang)

    def step(self, room: Room) -> bool:
        """Place or grow the first job that can use free GPUs; False when there is none."""
        while self._first_open < len(self.claim.demands) and room.gpus:
            job = self._first_open
            gang = None if self._is_hopeless(job) else self._next_gang(room, job)
            if gang is not None:
                self._accept(room, job, gang)
                return True
            self._give_up(job)
            self._first_open += 1
        return False

    def _is_hopeless(self, job: int) -> bool:
        return self._wants_new(job) and _kind(self.claim.demands[job]) in self._hopeless

    def _give_up(self, job: int) -> None:
        if self._wants_new(job):
            self._hopeless.add(_kind(self.claim.demands[job]))

    def _wants_new(self, job: int) -> bool:
        return job not in self._got and not self.claim.demands[job].held.counts

    def _next_gang(self, room: Room, job: int) -> PlacedGang | None:
        demand, got = self.claim.demands[job], self._got.get(job)
        if got is None:
            return place_in(room, demand, Standing(gpus=demand.held) if demand.held.counts else None)
        if got.gpus.gpus >= demand.max_gpus:
            return None
        slot = None if demand.held else got.slot
        rest = replace(demand, min_gpus=demand.unit_gpus, max_gpus=demand.max_gpus - got.gpus.gpus)
        return place_in(room, rest, Standing(gpus=demand.held + got.gpus, slot=slot))

    def _accept(self, room: Room, job: int, gang: PlacedGang) -> None:
        room.remove(gang)
        got = self._got.get(job)
        if got is not None:
            same_slot = gang.level is Level.SLOT
            gang = PlacedGang(gpus=got.gpus + gang.gpus, level=gang.level, slot=gang.slot if same_slot else None)
        self._got[job] = gang


def _kind(demand: GangDemand) -> _Kind:
    return demand.min_gpus, demand.max_gpus, demand.unit_gpus, demand.faster_than, demand.slowdown
