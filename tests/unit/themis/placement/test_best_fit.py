"""Placement of one gang: fastest, then nearest, then tightest."""

import itertools
import random

import pytest
from msgspec.structs import replace

from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.bids import FreeMachine, GangDemand
from themis.cluster import Allocation, Level
from themis.placement.best_fit import CurrentGang, best_fit, best_fit_within
from themis.placement.free_capacity import FreeCapacity
from themis.speeds import Speeds

STRICT = Slowdown(1.0, 1.2, 3.0, 5.0)


def machines(*entries):
    return tuple(FreeMachine(machine_id=name, rack_id=rack, free_slots=slots) for name, rack, slots in entries)


def demand(least, most, unit=1, slowdown=CRUDE_SLOWDOWN, **held):
    return GangDemand(
        job_id="j",
        min_gpus=least,
        max_gpus=most,
        unit_gpus=unit,
        slowdown=slowdown,
        held=Allocation.of(held),
    )


def fitted(free, wanted):
    """The best fit on these machines; a demand's held gang is what it extends."""
    current = CurrentGang(gpus=wanted.held) if wanted.held else None
    return best_fit(FreeCapacity(free), wanted, current)


def placed(free, wanted):
    gang = fitted(free, wanted)
    return gang and (gang.gpus.by_machine(), gang.level, gang.slot)


def test_the_tightest_slot_that_holds_the_gang():
    free = machines(("m0", "r0", (4,)), ("m1", "r0", (1, 3)), ("m2", "r0", (2, 2)), ("m3", "r0", (2, 0)))
    assert placed(free, demand(2, 2)) == ({"m3": 2}, Level.SLOT, 0)
    assert placed(free, demand(3, 3)) == ({"m1": 3}, Level.SLOT, 1)


def test_the_tightest_machine_when_no_slot_holds_it():
    free = machines(("m0", "r0", (3, 3)), ("m1", "r0", (2, 2)))
    assert placed(free, demand(4, 4)) == ({"m1": 4}, Level.MACHINE, None)


def test_more_gpus_at_a_looser_level_only_if_faster():
    free = machines(("m0", "r0", (2,)), ("m1", "r0", (2,)))
    assert placed(free, demand(1, 4)) == ({"m0": 2, "m1": 2}, Level.RACK, None)
    assert placed(free, demand(1, 4, slowdown=STRICT)) == ({"m0": 2}, Level.SLOT, 0)


def test_a_rack_before_the_cluster_and_few_machines():
    free = machines(("m0", "r0", (2,)), ("m1", "r1", (1,)), ("m2", "r1", (1,)), ("m3", "r1", (2,)))
    assert placed(free, demand(3, 3)) == ({"m1": 1, "m3": 2}, Level.RACK, None)
    assert placed(free, demand(5, 5)) == ({"m0": 1, "m1": 1, "m2": 1, "m3": 2}, Level.CLUSTER, None)


def test_equally_free_racks_leave_the_gang_to_the_smaller_id():
    free = machines(("m0", "r1", (1,)), ("m1", "r1", (1,)), ("m2", "r0", (1,)), ("m3", "r0", (1,)))
    assert placed(free, demand(2, 2)) == ({"m2": 1, "m3": 1}, Level.RACK, None)


def test_units_stay_whole():
    free = machines(("m0", "r0", (3,)), ("m1", "r0", (3,)))
    assert placed(free, demand(2, 6, unit=2)) == ({"m0": 2, "m1": 2}, Level.RACK, None)
    assert placed(free, demand(6, 6, unit=2)) is None
    assert placed(free, demand(4, 4, unit=4)) is None


def test_nothing_fits_nothing_is_placed():
    assert placed((), demand(1, 1)) is None
    assert placed(machines(("m0", "r0", (0,))), demand(1, 1)) is None
    assert placed(machines(("m0", "r0", (1,))), demand(2, 2)) is None


def test_a_held_gang_grows_on_its_machine_first():
    free = machines(("m0", "r0", (1, 1)), ("m1", "r0", (4,)))
    assert placed(free, demand(1, 2, m0=2)) == ({"m0": 2}, Level.MACHINE, None)
    assert placed(free, demand(1, 4, m0=2)) == ({"m0": 2, "m1": 2}, Level.RACK, None)


def test_a_held_gang_does_not_grow_where_that_slows_it_down():
    free = machines(("m0", "r0", (0,)), ("m1", "r0", (2,)))
    assert placed(free, demand(1, 2, slowdown=STRICT, m0=2)) is None
    assert placed(free, demand(1, 2, m0=2)) == ({"m1": 2}, Level.RACK, None)


def test_a_demand_in_units_gets_the_machine_with_fewest_free_gpus():
    """Seven and six free GPUs are both three units of two: the six are the tighter fit."""
    free = machines(("m0", "r0", (4, 3)), ("m1", "r0", (3, 3)))
    assert placed(free, demand(6, 6, unit=2)) == ({"m1": 6}, Level.MACHINE, None)


@pytest.mark.parametrize("count", range(1, 11))
def test_gangs_placed_one_by_one_use_all_gpus(count):
    capacity = FreeCapacity(machines(("m0", "r0", (2, 2)), ("m1", "r0", (2,)), ("m2", "r1", (1, 3))))
    for _ in range(count):
        gang = best_fit(capacity, demand(1, 1))
        assert gang is not None
        capacity.take(gang)
    assert capacity.gpus == 10 - count


# ---- brute force ----------------------------------------------------------------------------------------------------


def all_placements(capacity, demand, current):
    """Every placement of every usable number of GPUs: (GPUs by machine, slot or None, level with `current`)."""
    own = [machine for machine, _ in current.gpus] if current else []
    for name in capacity.machine_ids:
        for slot, free in enumerate(capacity.slot_free(name)):
            for gpus in usable_sizes(free, demand):
                if current is None or (own == [name] and current.slot == slot):
                    yield {name: gpus}, slot, Level.SLOT
    units = [range(capacity.free(name) // demand.unit_gpus + 1) for name in capacity.machine_ids]
    for counts in itertools.product(*units):
        parts = {
            name: count * demand.unit_gpus for name, count in zip(capacity.machine_ids, counts, strict=True) if count
        }
        gpus = sum(parts.values())
        if gpus in usable_sizes(gpus, demand):
            yield parts, None, capacity.level_of({*parts, *own})


def usable_sizes(free, demand):
    return [
        gpus for gpus in range(max(1, demand.min_gpus), min(free, demand.max_gpus) + 1) if gpus % demand.unit_gpus == 0
    ]


def throughput(demand, current, gpus, level):
    return ((current.gpus.gpus if current else 0) + gpus) / demand.slowdown.at(level)


def check_against_brute_force(capacity, demand, current):
    """The best fit is as fast as any placement, at the tightest level of these, in the tightest holder."""
    every = list(all_placements(capacity, demand, current))
    reached = {
        (throughput(demand, current, sum(parts.values()), level), -level, -sum(parts.values()))
        for parts, _, level in every
    }
    before = demand.faster_than
    if current:
        level = Level.SLOT if current.slot is not None else capacity.level_of(name for name, _ in current.gpus)
        before = max(before, throughput(demand, current, 0, level))
    gang = best_fit(capacity, demand, current)
    best = max(reached, default=(0.0, 0, 0))
    if best[0] <= before:
        assert gang is None
        return None
    assert gang is not None
    gpus = gang.gpus.gpus
    assert (throughput(demand, current, gpus, gang.level), -gang.level) == best[:2]
    here = [(parts, slot) for parts, slot, level in every if level is gang.level and sum(parts.values()) == gpus]
    assert (gang.gpus.by_machine(), gang.slot) in here
    if gang.level is Level.SLOT:
        place = min((capacity.slot_free(name)[slot], capacity.free(name), name, slot) for (name,), slot in here)
        assert (gang.gpus.counts[0][0], gang.slot) == place[2:]
    elif gang.level is Level.MACHINE and current is None:
        assert gang.gpus.counts[0][0] == min((capacity.free(name), name) for (name,), _ in here)[1]
    return gang


def drawn_demand(rng):
    unit = rng.choice((1, 1, 1, 2))
    least = unit * rng.randint(1, 2)
    return GangDemand(
        job_id="j",
        min_gpus=least,
        max_gpus=least + unit * rng.randint(0, 3),
        unit_gpus=unit,
        slowdown=rng.choice((CRUDE_SLOWDOWN, STRICT)),
        faster_than=rng.choice((0.0, 0.0, 0.9, 1.0, 2.5)),
    )


@pytest.mark.parametrize("seed", range(150))
def test_the_best_fit_is_that_of_all_placements(seed):
    rng = random.Random(seed)
    capacity = FreeCapacity(
        machines(*((f"m{each}", f"r{rng.randrange(2)}", (rng.randint(0, 4), rng.randint(0, 2))) for each in range(4)))
    )
    while capacity.gpus:
        wanted, current = drawn_demand(rng), None
        if rng.random() < 0.4:
            current = CurrentGang(gpus=Allocation.of({f"m{rng.randrange(4)}": 1}), slot=rng.choice((None, 0, 1)))
        gang = check_against_brute_force(capacity, wanted, current)
        if gang is None or rng.random() < 0.3:
            name = rng.choice(list(capacity.units(1)))
            capacity.place({name: rng.randint(1, capacity.free(name))})
        else:
            capacity.take(gang)


@pytest.mark.parametrize("seed", range(200))
def test_best_fit_within_equals_best_fit_on_a_part(seed):
    rng = random.Random(seed)
    free = machines(
        *((f"m{n}", f"r{n % 2}", tuple(rng.randint(0, 4) for _ in range(rng.randint(1, 3)))) for n in range(4))
    )
    capacity = FreeCapacity(free)
    for machine in free:
        # Pinned GPUs are counted by machine, and leave the choice of slots to others.
        capacity.reserve(machine.machine_id, rng.randint(0, machine.free))
    before = capacity.machines()
    own = {f"m{n}": rng.randint(1, 6) for n in rng.sample(range(6), rng.choice([1, 1, 1, 2, 3]))}
    least, unit = rng.randint(1, 3), rng.choice([1, 1, 2])
    wanted = demand(least * unit, (least + rng.randint(0, 4)) * unit, unit, rng.choice([STRICT, CRUDE_SLOWDOWN]))
    if rng.random() < 0.2:
        wanted = replace(wanted, faster_than=rng.choice([0.5, 2.0, 9.0]))
    assert best_fit_within(capacity, Allocation.of(own), wanted) == best_fit(capacity.part(own), wanted)
    assert capacity.machines() == before


# ---- device types ----------------------------------------------------------------------------------------------------


def typed(*entries):
    return tuple(
        FreeMachine(machine_id=name, rack_id=rack, free_slots=slots, device=device)
        for name, rack, slots, device in entries
    )


K80_AND_V100 = typed(("m0", "r0", (3,), "k80"), ("m1", "r0", (1,), "v100"))


def test_the_type_with_the_highest_throughput_is_taken():
    wanted = demand(1, 4)
    slower = best_fit(FreeCapacity(K80_AND_V100), replace(wanted, speeds=Speeds.of([("k80", 1.0), ("v100", 2.0)])))
    faster = best_fit(FreeCapacity(K80_AND_V100), replace(wanted, speeds=Speeds.of([("k80", 1.0), ("v100", 4.0)])))
    assert (slower.gpus.by_machine(), slower.device) == ({"m0": 3}, "k80")
    assert (faster.gpus.by_machine(), faster.device) == ({"m1": 1}, "v100")


def test_a_gang_never_spans_types_even_of_one_speed():
    assert fitted(K80_AND_V100, demand(4, 4)) is None
    assert fitted(K80_AND_V100, demand(1, 4)).gpus.by_machine() == {"m0": 3}


def test_equally_fast_types_leave_the_gang_to_the_smaller_name():
    free = typed(("m0", "r0", (2,), "v100"), ("m1", "r0", (2,), "k80"))
    same_speed = replace(demand(1, 2), speeds=Speeds.of([("k80", 2.0), ("v100", 2.0)]))
    assert fitted(free, same_speed).gpus.by_machine() == {"m1": 2}


def test_a_type_that_cannot_run_the_job_is_not_used():
    only_v100 = replace(demand(1, 4), speeds=Speeds.of([("v100", 1.0)]))
    assert fitted(K80_AND_V100, only_v100).gpus.by_machine() == {"m1": 1}
    assert fitted(K80_AND_V100, replace(only_v100, min_gpus=2)) is None


def test_an_extension_stays_on_the_type_of_its_gang():
    free = typed(("m0", "r0", (1,), "k80"), ("m1", "r0", (4,), "v100"))
    growing = replace(demand(1, 4, m0=1), speeds=Speeds.of([("k80", 1.0), ("v100", 2.0)]))
    assert fitted(free, growing).gpus.by_machine() == {"m0": 1}
    assert fitted(free[1:] + typed(("m0", "r0", (0,), "k80")), growing) is None


def test_part_without_a_machine_of_the_gang_still_knows_its_rack():
    free = typed(("m0", "r0", (2,), "k80"), ("m1", "r0", (1,), "v100"), ("m2", "r0", (1,), "v100"))
    growing = replace(demand(1, 1, m1=1, m2=1), speeds=Speeds.of([("v100", 1.0), ("k80", 0.3)]))
    # Of the gang's machines only m1 is in the part.
    part = FreeCapacity(free).part({"m0": 1, "m1": 1})
    gang = best_fit(part, growing, CurrentGang(gpus=growing.held))
    assert (gang.gpus.by_machine(), gang.level) == ({"m1": 1}, Level.RACK)


def test_taken_gpus_count_in_the_search_by_type():
    capacity = FreeCapacity(K80_AND_V100)
    wanted = replace(demand(1, 2), speeds=Speeds.of([("k80", 1.0), ("v100", 4.0)]))
    taken = []
    while (gang := best_fit(capacity, wanted)) is not None:
        capacity.take(gang)
        taken.append((gang.device, gang.gpus.gpus))
    assert taken == [("v100", 1), ("k80", 2), ("k80", 1)]
