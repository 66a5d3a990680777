"""Serving from one working copy: the quick ways must do what the slow ones do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rm_plugin.arbiter.leftovers import AppDemand, _JobQueue
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.greedy import serve_step_by_step
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand
from themis.cluster import Allocation, Level
from themis.placement.free_capacity import FreeCapacity

SLOWDOWNS = [Slowdown(1.0, 1.0, 1.1, 1.3), Slowdown(1.0, 1.2, 2.0, 4.0), Slowdown(1.0, 1.0, 1.0, 1.0)]
SLOTS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)


@st.composite
def machines(draw, slots=SLOTS):
    slots = draw(st.lists(slots, min_size=1, max_size=5))
    return tuple(
        FreeMachine(machine_id=f"m{place}", rack_id=f"r{place % 2}", free_slots=free)
        for place, free in enumerate(slots)
    )


@st.composite
def demands(draw, name, machine_ids, holds):
    unit = draw(st.sampled_from([1, 1, 2]))
    least, more = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    held = draw(st.sampled_from([None, None, *machine_ids])) if holds else None
    return GangDemand(
        job_id=name,
        min_gpus=least * unit,
        max_gpus=(least + more) * unit,
        unit_gpus=unit,
        slowdown=draw(st.sampled_from(SLOWDOWNS)),
        work_left_gpu_s=1.0,
        held=Allocation.of({held: unit} if held else {}),
    )


@st.composite
def app_demands(draw, free):
    left = {machine.machine_id: machine.free_slots for machine in free}
    found = []
    for app in range(draw(st.integers(1, 3))):
        slots = {machine: tuple(draw(st.integers(0, count)) for count in counts) for machine, counts in left.items()}
        left = {
            machine: tuple(count - mine for count, mine in zip(counts, slots[machine], strict=True))
            for machine, counts in left.items()
        }
        jobs = [draw(demands(f"j{place}", sorted(left), True)) for place in range(draw(st.integers(1, 4)))]
        renewable = Allocation.of({machine: sum(counts) for machine, counts in slots.items()})
        found.append(
            AppDemand(app_id=f"a{app}", demands=tuple(jobs), renewable=renewable, renewable_slots=tuple(slots.items()))
        )
    return found


def serve_in_order(free, app_demands):
    """Apps served whole, one after the other, each renewing in place first, by the parts that share leftovers."""
    capacity, granted = FreeCapacity(free), {}
    for app_demand in app_demands:
        queue = _JobQueue(app_demand, set())
        queue.renew(capacity)
        while queue.step(capacity):
            pass
        if gangs := queue.gangs():
            granted[app_demand.app_id] = gangs
    return granted


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_apps_in_order_are_served_as_leftovers_serve_them_if_machines_have_one_slot(data):
    free = data.draw(machines(st.tuples(st.integers(0, 8))))
    mine = data.draw(app_demands(free))
    allocator = GangAllocator(free, mine, lease_s=0.0)
    allocator.serve_in_order(app_demand.app_id for app_demand in mine)
    assert allocator.gangs() == serve_in_order(free, mine)


class Rebuilding(GangAllocator):
    """Compares the copy that it keeps for an app with a new one."""

    def _own_capacity(self, app_id):
        kept, new = super()._own_capacity(app_id), self.capacity.part_of_slots(self._renewable[app_id])
        assert kept.machines() == new.machines()
        assert [kept.free(at) for at in kept.machine_ids] == [new.free(at) for at in new.machine_ids]
        return kept


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_kept_copies_of_renewable_gpus_stay_current(data):
    free = data.draw(machines())
    allocator = Rebuilding(free, data.draw(app_demands(free)), lease_s=0.0)
    jobs = [(app_id, job) for app_id in allocator.app_demands for job in range(len(allocator.jobs(app_id)))]
    for app_id, job in data.draw(st.lists(st.sampled_from(jobs), max_size=12)):
        ask = data.draw(st.sampled_from([allocator.renewal, allocator.anywhere]))
        proposal = ask(app_id, job, step=data.draw(st.booleans()))
        if proposal is not None:
            allocator.take(app_id, job, proposal.gang)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_steps_leave_nothing_that_a_job_could_use(data):
    free = data.draw(machines())
    allocator = GangAllocator(free, data.draw(app_demands(free)), lease_s=0.0)
    serve_step_by_step(allocator, lambda app_id, given, ratio: (given.gpus, -ratio))
    for app_id in allocator.app_demands:
        for job in range(len(allocator.jobs(app_id))):
            assert allocator.propose(app_id, job) is None


def test_a_step_is_the_smallest_gang_then_a_unit():
    free = (FreeMachine(machine_id="m0", rack_id="r", free_slots=(8,)),)
    wanted = GangDemand(job_id="j", min_gpus=3, max_gpus=8, unit_gpus=2)
    allocator = GangAllocator(free, [AppDemand(app_id="a", demands=(wanted,))], lease_s=0.0)
    sizes = []
    while (proposal := allocator.propose("a", 0, step=True)) is not None:
        allocator.take("a", 0, proposal.gang)
        sizes.append(proposal.gang.gpus.gpus)
    assert sizes == [4, 2, 2]


def test_a_prospect_uses_the_level_of_held_and_new_gpus():
    free = tuple(FreeMachine(machine_id=f"m{place}", rack_id="r", free_slots=(place,)) for place in range(3))
    wanted = GangDemand(job_id="j", min_gpus=1, max_gpus=2, held=Allocation.of({"m0": 1}))
    allocator = GangAllocator(free, [AppDemand(app_id="a", demands=(wanted,))], lease_s=0.0)
    prospect = allocator.propose("a", 0).prospect
    assert (prospect.gpus, prospect.level, prospect.speed_before) == (3, Level.RACK, 1.0)
    assert prospect.speed == 3 / 1.1


def scattered(work=100_000.0, restart_s=60.0):
    """Four GPUs of an app on two machines at S = 2, and four free ones on a third at S = 1.1."""
    free = tuple(
        FreeMachine(machine_id=f"m{number}", rack_id="r", free_slots=(gpus,)) for number, gpus in enumerate((2, 2, 4))
    )
    wanted = GangDemand(job_id="j", min_gpus=4, max_gpus=4, slowdown=Slowdown(1.1, 1.1, 2.0, 2.0), work_left_gpu_s=work)
    held = Allocation.of({"m0": 2, "m1": 2})
    return free, [AppDemand(app_id="a", demands=(wanted,), renewable=held, restart_s=restart_s)]


@pytest.mark.parametrize(
    ("lease_s", "work", "restart_s", "machines"),
    [
        (1_200.0, 100_000.0, 60.0, ["m2"]),
        (120.0, 100_000.0, 60.0, ["m0", "m1"]),
        (1_200.0, 200.0, 60.0, ["m0", "m1"]),
        (1_200.0, 100_000.0, 600.0, ["m0", "m1"]),
        (0.0, 100_000.0, 60.0, ["m0", "m1"]),
    ],
)
def test_a_gang_moves_if_that_pays_within_the_lease(lease_s, work, restart_s, machines):
    """Within 1,200 s staying does 2,400 GPU s of work, and moving 4,145; within 120 s staying does more."""
    allocator = GangAllocator(*scattered(work, restart_s), lease_s)
    proposal = allocator.propose("a", 0)
    assert [machine for machine, _ in proposal.gang.gpus] == machines
    assert proposal.prospect.renews is (machines != ["m2"])


def test_gang_over_two_slots_moves_to_a_slot_if_that_pays():
    free = (
        FreeMachine(machine_id="m0", rack_id="r", free_slots=(1, 1)),
        FreeMachine(machine_id="m1", rack_id="r", free_slots=(2, 0)),
    )
    wanted = GangDemand(
        job_id="j", min_gpus=2, max_gpus=2, slowdown=Slowdown(1.0, 1.4, 2.0, 4.0), work_left_gpu_s=9000.0
    )
    held = Allocation.of({"m0": 2})
    app_demand = AppDemand(
        app_id="a", demands=(wanted,), renewable=held, renewable_slots=(("m0", (1, 1)),), restart_s=30.0
    )
    allocator = GangAllocator(free, [app_demand], lease_s=600.0)
    assert allocator.propose("a", 0).gang.gpus == Allocation.of({"m1": 2})


def test_renewed_gpus_are_taken_from_the_slots_where_they_are():
    free = (FreeMachine(machine_id="m0", rack_id="r", free_slots=(2, 2)),)
    one = GangDemand(job_id="j", min_gpus=1, max_gpus=1)
    two = GangDemand(job_id="k", min_gpus=2, max_gpus=2, slowdown=Slowdown(1.0, 1.4, 2.0, 4.0))
    held = Allocation.of({"m0": 2})
    single = AppDemand(app_id="a", demands=(one, one), renewable=held, renewable_slots=(("m0", (1, 1)),))
    allocator = GangAllocator(free, [single, AppDemand(app_id="b", demands=(two,))], lease_s=0.0)
    allocator.renew("a")
    assert allocator.capacity.slot_free("m0") == [1, 1]
    assert allocator.propose("b", 0).prospect.level is Level.MACHINE
