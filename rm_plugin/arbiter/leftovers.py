"""Leftovers: GPUs that the auction did not hand out go to whoever can use them (themis.md, section 3, step 5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rm_plugin.arbiter.placement import Standing, place_in
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.solvers.packing import Room
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Allocation, Level
from themis.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
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


def share_leftovers(
    machines: Sequence[FreeMachine], claims: Sequence[Claim], rng_seed: int
) -> dict[str, tuple[PlacedGang, ...]]:
    """Hand out free GPUs until no claim can use another one.

    First the apps that did not bid, then the bidders. Among each, in random order: every app renews what it held; then
    they take turns, a job a turn, at what has least S for the throughput it gives (`placement.place_gang`). A job that
    got less than its largest gang grows later while that makes it faster.

    The order is drawn by app from the seed, so it does not depend on the order of the claims.

    Args:
        machines: Free machines; include those without a free GPU where a demand's `held` lies.
        claims: One an app.
        rng_seed: The round's seed.

    Returns:
        Gangs by app id, a gang a job, only apps that got something. A grown gang is one gang; GPUs that the
        demand says are `held` are not repeated, but its level counts them.
    """
    by_job = share_leftovers_by_job(machines, claims, rng_seed)
    return {app_id: tuple(gangs.values()) for app_id, gangs in by_job.items()}


def share_leftovers_by_job(
    machines: Sequence[FreeMachine], claims: Sequence[Claim], rng_seed: int
) -> dict[str, dict[str, PlacedGang]]:
    """`share_leftovers` with the job that each gang is for: gang by job id by app id."""
    ids = [claim.app_id for claim in claims]
    if len(set(ids)) != len(ids):
        raise InputError("two claims of one app on the leftovers", value=sorted(ids))
    room = Room(machines)
    granted: dict[str, dict[str, PlacedGang]] = {}
    for bid in (False, True):
        drawn = sorted(
            (claim for claim in claims if claim.bid is bid),
            key=lambda claim: (child_seed(rng_seed, "leftovers", claim.app_id), claim.app_id),
        )
        queues = [_Queue(claim) for claim in drawn]
        for queue in queues:
            queue.renew(room)
        _take_turns(room, queues)
        granted |= {queue.claim.app_id: queue.gangs() for queue in queues if queue.gangs()}
    return dict(sorted(granted.items()))


def serve_in_order(machines: Sequence[FreeMachine], claims: Sequence[Claim]) -> dict[str, dict[str, PlacedGang]]:
    """Serve claims whole, one app after the other in the order given; each renews in place first.

    The greedy rule of policies that rank apps and hold no auction. Returns the gang by job id by app id.
    """
    room = Room(machines)
    granted: dict[str, dict[str, PlacedGang]] = {}
    for claim in claims:
        queue = _Queue(claim)
        queue.renew(room)
        while queue.step(room):
            pass
        if queue.gangs():
            granted[claim.app_id] = queue.gangs()
    return granted


def _take_turns(room: Room, queues: Iterable[_Queue]) -> None:
    """One job a turn, round after round; a queue that cannot use any GPU any more drops out."""
    waiting = deque(queues)
    while waiting:
        queue = waiting.popleft()
        if queue.step(room):
            waiting.append(queue)


class _Queue:
    """One app's jobs with the gangs they got here so far."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self._got: list[PlacedGang | None] = [None] * len(claim.demands)
        # Room only shrinks, so a job that finds nothing now never will: each fails once at most.
        self._open = deque(range(len(claim.demands)))

    def gangs(self) -> dict[str, PlacedGang]:
        """Gang by job id, jobs in the claim's order."""
        pairs = zip(self.claim.demands, self._got, strict=True)
        return {demand.job_id: gang for demand, gang in pairs if gang is not None}

    def renew(self, room: Room) -> None:
        """Place jobs, in order, on the GPUs that the app held, as far as these are free."""
        if not self.claim.renewable:
            return
        held = self.claim.renewable.by_machine()
        own = Room(room.machines())
        for machine_id in own.machine_ids:
            own.reserve(machine_id, max(0, own.free(machine_id) - held.get(machine_id, 0)))
        for job in range(len(self._got)):
            gang = self._next_gang(own, job)
            if gang is not None:
                own.remove(gang)
                self._accept(room, job, gang)

    def step(self, room: Room) -> bool:
        """Place or grow the first job that can use free GPUs; False when there is none."""
        while self._open:
            gang = self._next_gang(room, self._open[0])
            if gang is not None:
                self._accept(room, self._open[0], gang)
                return True
            self._open.popleft()
        return False

    def _next_gang(self, room: Room, job: int) -> PlacedGang | None:
        demand, got = self.claim.demands[job], self._got[job]
        if got is None:
            return place_in(room, demand, Standing(gpus=demand.held) if demand.held else None)
        if got.gpus.gpus >= demand.max_gpus:
            return None
        slot = None if demand.held else got.slot
        rest = replace(demand, min_gpus=demand.unit_gpus, max_gpus=demand.max_gpus - got.gpus.gpus)
        return place_in(room, rest, Standing(gpus=demand.held + got.gpus, slot=slot))

    def _accept(self, room: Room, job: int, gang: PlacedGang) -> None:
        room.remove(gang)
        got = self._got[job]
        if got is not None:
            same_slot = gang.level is Level.SLOT
            gang = PlacedGang(gpus=got.gpus + gang.gpus, level=gang.level, slot=gang.slot if same_slot else None)
        self._got[job] = gang
