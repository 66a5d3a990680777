"""Free GPUs and the unmet demands of all apps, for policies without an auction: they give out gang by gang."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import Decision, RoundSnapshot
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.blind_placement import blind_fit
from rm_plugin.policies.demands import demands_left, gangs_of, room_to_grow
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.choices import GangPlacement
from themis.cluster import Allocation, Level
from themis.placement.best_fit import CurrentGang, best_fit
from themis.placement.free_capacity import FreeCapacity, own_slots_after, slots_after
from themis.speeds import Speeds
from themis.values import Value

_MOVE_GAIN = 1.02
"""A move must do this many times the work of staying, so that gangs of about equal speed stay where they are."""


class DemandClass(Value, frozen=True):
    """The part of a demand that placement depends on. Demands of one class find the same new gang, or none."""

    min_gpus: int
    max_gpus: int
    unit_gpus: int
    slowdown: Slowdown
    speeds: Speeds

    @classmethod
    def of(cls, demand: GangDemand) -> DemandClass:
        """The class of a demand."""
        return cls(demand.min_gpus, demand.max_gpus, demand.unit_gpus, demand.slowdown, demand.speeds)


class Prospect(Value, frozen=True):
    """What a job would have with one more gang.

    Attributes:
        gpus: All GPUs of the job.
        level: The level that they span.
        speed: Throughput on them, in units of one reference GPU at S = 1.
        speed_before: Throughput on what the job has now; 0 without GPUs.
        renews: Whether the gang is renewed in place, without a restart.
    """

    gpus: int
    level: Level
    speed: float
    speed_before: float
    renews: bool


class Proposal(Value, frozen=True):
    """A gang that a job could get now, and what it would have then."""

    gang: PlacedGang
    prospect: Prospect


class GangAllocator:
    """A working copy of the free GPUs, and the gangs that each job got so far.

    Free capacity only shrinks. So a job that finds no place now, and every job of the same demand class, never will.

    Args:
        machines: All machines of the round, also those without a free GPU.
        app_demands: One per app.
        lease_s: Seconds of a lease. A gang moves to a better place if that pays for its restart within the lease.
        blind_seed: With it, no gang is renewed, and all gangs are placed on random GPUs (`blind_fit`).
    """

    def __init__(
        self,
        machines: Iterable[FreeMachine],
        app_demands: Iterable[AppDemand],
        lease_s: float,
        blind_seed: int | None = None,
    ) -> None:
        self._lease_s = lease_s
        self._blind_seed = blind_seed
        self.capacity = FreeCapacity(machines)
        self.app_demands = {app_demand.app_id: app_demand for app_demand in app_demands}
        self._got: dict[str, dict[int, PlacedGang]] = {app_id: {} for app_id in self.app_demands}
        self._renewable = {
            app_id: self._renewable_slots(app_demand) if blind_seed is None else {}
            for app_id, app_demand in self.app_demands.items()
        }
        self._unplaceable: set[DemandClass] = set()
        self._own: dict[str, FreeCapacity] = {}

    @classmethod
    def for_baseline(
        cls, snapshot: RoundSnapshot, app_demands: Iterable[AppDemand], *, moves: bool = True
    ) -> GangAllocator:
        """The free GPUs of a round for a policy of the paper's comparison, with the placement that it asks for.

        Without `moves`, no gang moves: a place elsewhere may be one that another app can renew.
        """
        blind = snapshot.settings.gang_placement is GangPlacement.BLIND
        blind_seed = child_seed(snapshot.seed, "placement") if blind else None
        return cls(snapshot.machines, app_demands, snapshot.lease_s if moves else 0.0, blind_seed)

    # ---- reading ----

    @property
    def free_gpus(self) -> int:
        """Free GPUs of all machines."""
        return self.capacity.gpus

    def jobs(self, app_id: str) -> Sequence[GangDemand]:
        """An app's demands, in the order in which its jobs are served."""
        return self.app_demands[app_id].demands

    def may_renew(self, app_id: str) -> bool:
        """Whether GPUs that the app held until now are still free."""
        return any(self.capacity.free(machine) for machine in self._renewable[app_id])

    def gangs(self) -> dict[str, dict[str, PlacedGang]]:
        """Gang by job id by app id, in order of app ids, only for apps that got one; jobs in order of demands."""
        return {
            app_id: {self.app_demands[app_id].demands[job].job_id: got[job] for job in sorted(got)}
            for app_id, got in sorted(self._got.items())
            if got
        }

    def given(self, app_id: str) -> list[Allocation]:
        """The GPUs that an app got so far, by job."""
        return [gang.gpus for gang in self._got[app_id].values()]

    def gpus_of(self, app_id: str, job: int) -> int:
        """GPUs that a job has: those it got in this round, and those of the gang that it keeps."""
        got, held = self._got[app_id].get(job), self.app_demands[app_id].demands[job].held
        return (held.gpus if held else 0) + (got.gpus.gpus if got is not None else 0)

    def best_case(self, app_id: str, job: int) -> Prospect:
        """A prospect at least as good as any that the job can still have. It needs no look at the machines."""
        demand, got = self.app_demands[app_id].demands[job], self._got[app_id].get(job)
        held = demand.held.gpus
        speed = (held + demand.max_gpus) * demand.speeds.fastest / demand.slowdown.slot
        before = self._speed(demand, got) if got is not None or held else 0.0
        return Prospect(held + demand.max_gpus, Level.SLOT, speed, before, self.may_renew(app_id))

    def decision(self) -> Decision:
        """The gangs given so far, as the decision of a round."""
        gangs = self.gangs()
        return Decision(auction=gangs_of(gangs), unserved=demands_left(list(self.app_demands.values()), gangs))

    # ---- serving ----

    def propose(self, app_id: str, job: int, *, step: bool = False) -> Proposal | None:
        """The best gang for a job: on GPUs that its app held, where it renews in place, else anywhere.

        Args:
            app_id: The app.
            job: Index of the job in the app's demands.
            step: Propose only the smallest gang, or one unit in addition to what the job has. More units are proposed
                only if one is no faster.

        Returns:
            None if the job can use none of the free GPUs.
        """
        return self.renewal(app_id, job, step=step) or self.anywhere(app_id, job, step=step)

    def renewal(self, app_id: str, job: int, *, step: bool = False) -> Proposal | None:
        """As `propose`, but only on free GPUs that the app held until now, or elsewhere if a move there pays."""
        if not self.may_renew(app_id):
            return None
        demand, current = self._wanted(app_id, job)
        if demand is None or self._is_unplaceable(demand, current):
            return None
        gang = self._fit(self._own_capacity(app_id), demand, current, step)
        if gang is None:
            return None
        stay = Proposal(gang, self._prospect(app_id, job, gang, renews=True))
        # What was given in this round stays where it is.
        move = self._move(app_id, job, stay, step=step) if current is None else None
        return move or stay

    def _move(self, app_id: str, job: int, stay: Proposal, *, step: bool) -> Proposal | None:
        """The best gang anywhere, if a move there pays for its restart before the lease or the job ends.

        Example: a job has 4 GPUs at S = 2, and elsewhere 4 GPUs at S = 1.1 are free. In a lease of 1,200 s it does
        2,400 GPU seconds of work if it stays, and (1,200 - 60) * 4 / 1.1 = 4,145 if it moves, with a restart of 60 s.
        """
        app_demand, here = self.app_demands[app_id], stay.prospect.speed
        if self.best_case(app_id, job).speed <= _MOVE_GAIN * here:
            return None
        move = self.anywhere(app_id, job, step=step)
        if move is None:
            return None
        horizon_s = min(self._lease_s, app_demand.demands[job].work_left_gpu_s / here)
        pays = move.prospect.speed * (horizon_s - app_demand.restart_s) > _MOVE_GAIN * here * horizon_s
        return move if pays else None

    def anywhere(self, app_id: str, job: int, *, step: bool = False) -> Proposal | None:
        """As `propose`, but on all free GPUs alike."""
        demand, current = self._wanted(app_id, job)
        if demand is None or self._is_unplaceable(demand, current):
            return None
        gang = self._fit(self.capacity, demand, current, step)
        if gang is None:
            if current is None:
                self._unplaceable.add(DemandClass.of(demand))
            return None
        return Proposal(gang, self._prospect(app_id, job, gang, renews=False))

    def take(self, app_id: str, job: int, gang: PlacedGang) -> None:
        """Give a job a gang, in addition to what it got in this round."""
        self._take_gpus(app_id, gang)
        got = self._got[app_id].get(job)
        if got is not None:
            slot = gang.slot if gang.level is Level.SLOT else None
            gang = PlacedGang(gpus=got.gpus + gang.gpus, level=gang.level, slot=slot, device=gang.device)
        self._got[app_id][job] = gang

    def renew(self, app_id: str) -> None:
        """Place jobs, in order, on the GPUs that the app held, as far as these are free. They go on undisturbed."""
        failed: set[DemandClass] = set()
        for job, demand in enumerate(self.jobs(app_id)):
            if not self.may_renew(app_id):
                return
            demand_class = DemandClass.of(demand)
            if not demand.held and demand_class in failed:
                continue
            proposal = self.renewal(app_id, job)
            if proposal is not None:
                self.take(app_id, job, proposal.gang)
            elif not demand.held:
                failed.add(demand_class)

    def serve_whole(self, app_id: str) -> None:
        """Serve an app until it can use nothing more: it renews in place, then takes the best fit, job by job."""
        self.renew(app_id)
        for job in range(len(self.jobs(app_id))):
            while self.free_gpus and (proposal := self.anywhere(app_id, job)) is not None:
                self.take(app_id, job, proposal.gang)

    def serve_in_order(self, app_ids: Iterable[str]) -> Decision:
        """Serve whole apps, one after the other."""
        for app_id in app_ids:
            self.serve_whole(app_id)
        return self.decision()

    # ---- inside ----

    def _wanted(self, app_id: str, job: int) -> tuple[GangDemand | None, CurrentGang | None]:
        """What a job could still use, and what it has."""
        demand, got = self.app_demands[app_id].demands[job], self._got[app_id].get(job)
        if got is None:
            return demand, CurrentGang(gpus=demand.held) if demand.held else None
        slot = None if demand.held else got.slot
        return room_to_grow(demand, got), CurrentGang(gpus=demand.held + got.gpus, slot=slot)

    def _is_unplaceable(self, demand: GangDemand, current: CurrentGang | None) -> bool:
        if self.free_gpus < demand.min_gpus:
            return True
        return current is None and DemandClass.of(demand) in self._unplaceable

    def _fit(
        self, capacity: FreeCapacity, demand: GangDemand, current: CurrentGang | None, step: bool
    ) -> PlacedGang | None:
        """The place of a gang, or of the smallest one (`step`)."""

        def place(demand: GangDemand) -> PlacedGang | None:
            if self._blind_seed is None:
                return best_fit(capacity, demand, current)
            return blind_fit(capacity, demand, current, self._blind_seed)

        if not step:
            return place(demand)
        units = -(-demand.min_gpus // demand.unit_gpus)
        small = min(demand.max_gpus, units * demand.unit_gpus)
        gang = place(replace(demand, max_gpus=small))
        if gang is None and current is not None and small < demand.max_gpus:
            # One more unit may be too far away to be faster, while several are.
            gang = place(demand)
        return gang

    def _renewable_slots(self, app_demand: AppDemand) -> dict[str, tuple[int, ...]]:
        """The GPUs that an app can renew, by slot. If only their number is known, those of the tightest slots."""
        if app_demand.renewable_slots or not app_demand.renewable:
            return dict(app_demand.renewable_slots)
        slots = {}
        for machine, count in app_demand.renewable:
            free = tuple(self.capacity.slot_free(machine))
            left = slots_after(free, min(count, self.capacity.free(machine)))
            slots[machine] = tuple([here - after for here, after in zip(free, left, strict=True)])
        return slots

    def _own_capacity(self, app_id: str) -> FreeCapacity:
        """A copy with only those of the app's renewable GPUs that are still free; kept until a gang changes it."""
        own = self._own.get(app_id)
        if own is None:
            own = self._own[app_id] = self.capacity.part_of_slots(self._renewable[app_id])
        return own

    def _take_gpus(self, app_id: str, gang: PlacedGang) -> None:
        """Take the GPUs that the arbiter will give to a gang: those that its app can renew, then others."""
        renewable, others = self._renewable[app_id], {}
        for machine, count in gang.gpus:
            if machine in renewable:
                own = tuple(map(min, renewable[machine], self.capacity.slot_free(machine)))
                left = own_slots_after(own, count, gang.slot)
                self.capacity.take_from_slots(machine, [had - has for had, has in zip(own, left, strict=True)])
                count -= sum(own) - sum(left)
                renewable[machine] = left
                if not any(left):
                    del renewable[machine]
            if count:
                others[machine] = count
        if others:
            self.capacity.take(replace(gang, gpus=Allocation.of(others)))
        machines = [machine for machine, _ in gang.gpus]
        self._own = {
            other: free
            for other, free in self._own.items()
            if other != app_id and not any(free.free(machine) for machine in machines)
        }

    def _prospect(self, app_id: str, job: int, gang: PlacedGang, *, renews: bool) -> Prospect:
        demand, got = self.app_demands[app_id].demands[job], self._got[app_id].get(job)
        gpus = demand.held.gpus + gang.gpus.gpus + (got.gpus.gpus if got is not None else 0)
        speed = gpus * demand.speeds.on(gang.device) / demand.slowdown.at(gang.level)
        return Prospect(gpus, gang.level, speed, self._speed(demand, got), renews)

    def _speed(self, demand: GangDemand, got: PlacedGang | None) -> float:
        """Throughput of a job on what it has, in units of one reference GPU at S = 1."""
        if got is not None:
            gpus = demand.held.gpus + got.gpus.gpus
            return gpus * demand.speeds.on(got.device) / demand.slowdown.at(got.level)
        if not demand.held:
            return 0.0
        speed = demand.speeds.on(self.capacity.device_of(demand.held.counts[0][0]))
        level = self.capacity.level_of(machine for machine, _ in demand.held)
        return demand.held.gpus * speed / demand.slowdown.at(level)
