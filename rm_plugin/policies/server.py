"""Free GPUs and the jobs that wait for them, as policies without an auction serve them: gang by gang."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import Claim
from rm_plugin.arbiter.placement import Standing, place_in
from rm_plugin.arbiter.round_values import Decision
from rm_plugin.policies.demands import gangs_of, room_to_grow, unserved
from rm_plugin.solvers.packing import Room
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Level
from themis.values import Value


class Kind(Value, frozen=True):
    """What placement goes by: jobs of one kind that have no GPUs yet find the same place, or none."""

    min_gpus: int
    max_gpus: int
    unit_gpus: int
    slowdown: Slowdown

    @classmethod
    def of(cls, demand: GangDemand) -> Kind:
        """The kind of a demand."""
        return cls(demand.min_gpus, demand.max_gpus, demand.unit_gpus, demand.slowdown)


class Prospect(Value, frozen=True):
    """What a job would run on with a gang more: its GPUs in all, their level, and throughput in units of one GPU.

    `speed_before` is the throughput on what it has, 0 without GPUs. `renews`: in place, without a restart.
    """

    gpus: int
    level: Level
    speed: float
    speed_before: float
    renews: bool


class Proposal(Value, frozen=True):
    """A gang that a job could be given now, and what it would run on then."""

    gang: PlacedGang
    prospect: Prospect


class Server:
    """One working copy of the free GPUs, and what every job was given so far.

    Machines that free up nothing more: room only shrinks. So a job that finds no place now never will, and neither
    will its like.

    Args:
        machines: The machines of the round, those without a free GPU included.
        claims: One an app.
    """

    def __init__(self, machines: Iterable[FreeMachine], claims: Iterable[Claim]) -> None:
        self.room = Room(machines)
        self.free_gpus = sum(self.room.free(machine) for machine in self.room.machine_ids)
        self.claims = {claim.app_id: claim for claim in claims}
        self._got: dict[str, dict[int, PlacedGang]] = {app_id: {} for app_id in self.claims}
        self._up = {app_id: claim.renewable.by_machine() for app_id, claim in self.claims.items()}
        self._hopeless: set[Kind] = set()
        self._own: dict[str, Room] = {}

    # ---- reading ----

    def jobs(self, app_id: str) -> Sequence[GangDemand]:
        """An app's demands, the job to serve first in front."""
        return self.claims[app_id].demands

    def may_renew(self, app_id: str) -> bool:
        """True while GPUs that the app held are not spoken for."""
        return any(self.room.free(machine) for machine, count in self._up[app_id].items() if count)

    def gangs(self) -> dict[str, dict[str, PlacedGang]]:
        """Gang by job id by app id, apps that got something only, in order of their ids; jobs in the claim's order."""
        return {
            app_id: {self.claims[app_id].demands[job].job_id: got[job] for job in sorted(got)}
            for app_id, got in sorted(self._got.items())
            if got
        }

    def given_gpus(self, app_id: str) -> int:
        """GPUs that an app was given so far."""
        return sum(gang.gpus.gpus for gang in self._got[app_id].values())

    def gpus_of(self, app_id: str, job: int) -> int:
        """GPUs that a job has: given in this round, and those of its gang that it keeps."""
        got, held = self._got[app_id].get(job), self.claims[app_id].demands[job].held
        return (held.gpus if held else 0) + (got.gpus.gpus if got is not None else 0)

    def best_case(self, app_id: str, job: int) -> Prospect:
        """A prospect at least as good as any that the job can still have, without a look at the machines."""
        demand, got = self.claims[app_id].demands[job], self._got[app_id].get(job)
        held = demand.held.gpus
        speed = (held + demand.max_gpus) / demand.slowdown.slot
        before = self._speed(demand, got) if got is not None or held else 0.0
        return Prospect(held + demand.max_gpus, Level.SLOT, speed, before, self.may_renew(app_id))

    def decision(self) -> Decision:
        """What was given so far, as the decision of a round."""
        gangs = self.gangs()
        return Decision(auction=gangs_of(gangs), unserved=unserved(list(self.claims.values()), gangs))

    # ---- serving ----

    def propose(self, app_id: str, job: int, *, step: bool = False) -> Proposal | None:
        """The best gang for a job: on GPUs that its app held, where it renews in place, else anywhere.

        Args:
            app_id: The app.
            job: Place of the job in its claim.
            step: No more than its smallest gang, or one unit beside what it has; more only where less is no faster.

        Returns:
            None when the job can use nothing of what is free.
        """
        return self.renewal(app_id, job, step=step) or self.anywhere(app_id, job, step=step)

    def renewal(self, app_id: str, job: int, *, step: bool = False) -> Proposal | None:
        """As `propose`, only on free GPUs that the app held until now."""
        if not self.may_renew(app_id):
            return None
        demand, standing = self._wanted(app_id, job)
        if demand is None or self._is_hopeless(demand, standing):
            return None
        gang = _place(self._own_room(app_id), demand, standing, step)
        return None if gang is None else Proposal(gang, self._prospect(app_id, job, gang, renews=True))

    def anywhere(self, app_id: str, job: int, *, step: bool = False) -> Proposal | None:
        """As `propose`, on all that is free alike."""
        demand, standing = self._wanted(app_id, job)
        if demand is None or self._is_hopeless(demand, standing):
            return None
        gang = _place(self.room, demand, standing, step)
        if gang is None:
            if standing is None:
                self._hopeless.add(Kind.of(demand))
            return None
        return Proposal(gang, self._prospect(app_id, job, gang, renews=False))

    def take(self, app_id: str, job: int, gang: PlacedGang) -> None:
        """Give a job a gang, beside what it was given in this round."""
        self.room.remove(gang)
        self.free_gpus -= gang.gpus.gpus
        self._take_own(app_id, gang)
        up = self._up[app_id]
        for machine, count in gang.gpus:
            if machine in up:
                up[machine] = max(0, up[machine] - count)
        got = self._got[app_id].get(job)
        if got is not None:
            slot = gang.slot if gang.level is Level.SLOT else None
            gang = PlacedGang(gpus=got.gpus + gang.gpus, level=gang.level, slot=slot)
        self._got[app_id][job] = gang

    def renew(self, app_id: str) -> None:
        """Place jobs, in order, on the GPUs that the app held, as far as these are free: its tasks never notice."""
        passed: set[Kind] = set()
        for job, demand in enumerate(self.jobs(app_id)):
            if not self.may_renew(app_id):
                return
            kind = Kind.of(demand)
            if not demand.held and kind in passed:
                continue
            proposal = self.renewal(app_id, job)
            if proposal is not None:
                self.take(app_id, job, proposal.gang)
            elif not demand.held:
                passed.add(kind)

    def serve_whole(self, app_id: str) -> None:
        """Serve an app until it can use nothing more: it renews in place, then takes what is fastest, job by job."""
        self.renew(app_id)
        for job in range(len(self.jobs(app_id))):
            while self.free_gpus and (proposal := self.anywhere(app_id, job)) is not None:
                self.take(app_id, job, proposal.gang)

    def serve_in_order(self, app_ids: Iterable[str]) -> Decision:
        """Serve apps whole, one after the other."""
        for app_id in app_ids:
            self.serve_whole(app_id)
        return self.decision()

    # ---- inside ----

    def _wanted(self, app_id: str, job: int) -> tuple[GangDemand | None, Standing | None]:
        """What a job could still use, and what it has."""
        demand, got = self.claims[app_id].demands[job], self._got[app_id].get(job)
        if got is None:
            return demand, Standing(gpus=demand.held) if demand.held else None
        slot = None if demand.held else got.slot
        return room_to_grow(demand, got), Standing(gpus=demand.held + got.gpus, slot=slot)

    def _is_hopeless(self, demand: GangDemand, standing: Standing | None) -> bool:
        if self.free_gpus < demand.min_gpus:
            return True
        return standing is None and Kind.of(demand) in self._hopeless

    def _own_room(self, app_id: str) -> Room:
        """The GPUs that the app held and that are still free, as a room that changes as gangs are taken."""
        room = self._own.get(app_id)
        if room is None:
            room = self._own[app_id] = self.room.part(self._up[app_id])
        return room

    def _take_own(self, app_id: str, gang: PlacedGang) -> None:
        """Keep up the rooms that apps have of their own as a gang of an app is taken; those that it changes go."""
        own = self._own.pop(app_id, None)
        counts = gang.gpus.counts
        self._own = {other: room for other, room in self._own.items() if not any(room.free(at) for at, _ in counts)}
        if own is not None and all(own.free(machine) >= count for machine, count in counts):
            own.remove(gang)
            self._own[app_id] = own

    def _prospect(self, app_id: str, job: int, gang: PlacedGang, *, renews: bool) -> Prospect:
        demand, got = self.claims[app_id].demands[job], self._got[app_id].get(job)
        gpus = demand.held.gpus + gang.gpus.gpus + (got.gpus.gpus if got is not None else 0)
        return Prospect(gpus, gang.level, gpus / demand.slowdown.at(gang.level), self._speed(demand, got), renews)

    def _speed(self, demand: GangDemand, got: PlacedGang | None) -> float:
        """Throughput of a job on what it has, in units of one GPU at S = 1."""
        if got is not None:
            return (demand.held.gpus + got.gpus.gpus) / demand.slowdown.at(got.level)
        if not demand.held:
            return 0.0
        return demand.held.gpus / demand.slowdown.at(self.room.level_of(machine for machine, _ in demand.held))


def _place(room: Room, demand: GangDemand, standing: Standing | None, step: bool) -> PlacedGang | None:
    if not step:
        return place_in(room, demand, standing)
    units = -(-demand.min_gpus // demand.unit_gpus)
    small = min(demand.max_gpus, units * demand.unit_gpus)
    gang = place_in(room, replace(demand, max_gpus=small), standing)
    if gang is None and standing is not None and small < demand.max_gpus:
        # One unit more may be no faster, as it lies too far away, while several are.
        gang = place_in(room, demand, standing)
    return gang
