"""Levels, machines with slots, allocations as counts, and the cluster's questions about nearness."""

import itertools

import pytest
from hypothesis import given
from strategies import ALLOCATIONS, CLUSTERS

from themis.cluster import Allocation, Cluster, GpuId, Level, Machine
from themis.errors import InputError, UnknownNameError

WIDE = Machine(machine_id="wide", rack_id="r0", slots=(2, 2))
ODD = Machine(machine_id="odd", rack_id="r0", slots=(3, 1))
FAR = Machine(machine_id="far", rack_id="r1", slots=(2,))
CLUSTER = Cluster(name="c", machines=(WIDE, ODD, FAR))


def gpus(*texts):
    return [GpuId.parse(text) for text in texts]


class TestLevel:
    def test_nearest_comes_first(self):
        assert list(Level) == sorted(Level) == [Level.SLOT, Level.MACHINE, Level.RACK, Level.CLUSTER]

    @pytest.mark.parametrize("level", Level)
    def test_labels_parse_back(self, level):
        assert Level.parse(level.label) is level

    def test_an_unknown_label_names_the_nearest(self):
        with pytest.raises(UnknownNameError, match="did you mean 'machine'"):
            Level.parse("machines")


class TestGpuId:
    def test_parsing_reverses_printing_for_machine_names_with_slashes(self):
        for gpu in (GpuId("m", 0), GpuId("rack/m", 12)):
            assert GpuId.parse(str(gpu)) == gpu

    @pytest.mark.parametrize("text", ["", "m", "m/", "m/x", "m/-1", "m/1.5", "/3", "m/\u00b2"])
    def test_malformed_ids_are_input_errors(self, text):
        with pytest.raises(InputError, match="MACHINE/INDEX"):
            GpuId.parse(text)


class TestMachine:
    def test_gpus_lie_in_slots_in_order(self):
        assert [ODD.slot_of(index) for index in range(ODD.gpus)] == [0, 0, 0, 1]

    @pytest.mark.parametrize("index", [-1, 4])
    def test_it_has_no_gpu_beyond_its_slots(self, index):
        with pytest.raises(InputError, match="odd"):
            ODD.slot_of(index)


class TestAllocation:
    def test_zeros_go_and_machines_are_ordered(self):
        assert Allocation.of({"b": 1, "a": 2, "c": 0}).counts == (("a", 2), ("b", 1))

    def test_a_negative_count_is_refused(self):
        with pytest.raises(InputError, match="negative"):
            Allocation.of({"a": -1})

    def test_a_machine_counted_twice_is_refused(self):
        with pytest.raises(InputError, match="twice"):
            Allocation.of([("a", 1), ("a", 2)])

    def test_single_gpus_are_counted(self):
        assert Allocation.of_gpus(gpus("a/1", "b/0", "a/0")) == Allocation.of({"a": 2, "b": 1})

    def test_a_sum_counts_each_machine_once(self):
        one, two = Allocation.of({"b": 1}), Allocation.of({"a": 2, "b": 3})
        assert Allocation.sum_of([one, two, one]) == one + two + one == Allocation.of({"a": 2, "b": 5})
        assert Allocation.sum_of(()) == Allocation()

    def test_subtracting_missing_gpus_is_refused(self):
        with pytest.raises(InputError):
            Allocation.of({"a": 1}) - Allocation.of({"b": 1})

    @given(ALLOCATIONS, ALLOCATIONS)
    def test_sums_and_differences_agree(self, one, two):
        total = one + two
        assert total == two + one
        assert total - two == one
        assert total.gpus == one.gpus + two.gpus
        assert one.within(total)
        assert two.within(one) == all(count <= one.count(machine) for machine, count in two)
        assert Allocation.of(one.by_machine()) == one

    def test_the_empty_one_is_false_and_within_all(self):
        assert not Allocation()
        assert Allocation().within(Allocation())
        assert Allocation().count("a") == 0


class TestCluster:
    def test_two_machines_cannot_share_an_id(self):
        with pytest.raises(InputError, match="share one id"):
            Cluster(name="c", machines=(WIDE, WIDE))

    def test_an_unknown_machine_names_the_nearest(self):
        with pytest.raises(UnknownNameError, match="'wide'"):
            CLUSTER.machine("wid")

    def test_racks_keep_the_order_of_machines(self):
        assert CLUSTER.racks == {"r0": (WIDE, ODD), "r1": (FAR,)}

    @pytest.mark.parametrize(
        ("members", "level"),
        [
            ((), Level.SLOT),
            (("wide/0",), Level.SLOT),
            (("wide/0", "wide/1"), Level.SLOT),
            (("wide/1", "wide/2"), Level.MACHINE),
            (("odd/0", "odd/2"), Level.SLOT),
            (("wide/0", "odd/0"), Level.RACK),
            (("wide/0", "far/0"), Level.CLUSTER),
        ],
    )
    def test_the_level_of_gpus(self, members, level):
        assert CLUSTER.level_of_gpus(gpus(*members)) is level
        assert CLUSTER.level_of(Allocation.of_gpus(gpus(*members))) is max(level, Level.MACHINE)

    @pytest.mark.parametrize(
        ("size", "level"),
        [(1, Level.SLOT), (3, Level.SLOT), (4, Level.MACHINE), (5, Level.RACK), (8, Level.RACK), (9, Level.CLUSTER)],
    )
    def test_the_nearest_level_that_a_gang_fits_at(self, size, level):
        assert CLUSTER.nearest_level_for(size) is level

    @given(CLUSTERS)
    def test_the_nearest_level_is_that_of_some_gpus_and_no_nearer_ones(self, cluster):
        for size in range(1, min(4, cluster.gpus) + 1):
            levels = {cluster.level_of_gpus(some) for some in itertools.combinations(cluster.gpu_ids()[:9], size)}
            assert cluster.nearest_level_for(size) <= min(levels)
            if cluster.gpus <= 9:
                assert cluster.nearest_level_for(size) == min(levels)

    def test_zero_gpus_fit_in_a_slot_and_too_many_only_in_the_cluster(self):
        assert CLUSTER.nearest_level_for(0) is Level.SLOT
        assert CLUSTER.nearest_level_for(CLUSTER.gpus + 1) is Level.CLUSTER
        assert len(CLUSTER.fitting_levels) == CLUSTER.gpus

    def test_gpus_and_racks_by_machine(self):
        assert CLUSTER.gpus_of("far") == tuple(gpus("far/0", "far/1"))
        assert CLUSTER.rack_of == {"wide": "r0", "odd": "r0", "far": "r1"}
        with pytest.raises(UnknownNameError, match="'far'"):
            CLUSTER.gpus_of("fat")

    @given(CLUSTERS)
    def test_gpu_ids_are_as_many_as_counted(self, cluster):
        ids = cluster.gpu_ids()
        assert len(set(ids)) == len(ids) == cluster.gpus
        assert Allocation.of_gpus(ids).gpus == cluster.gpus
        assert cluster.largest_machine_gpus == max(machine.gpus for machine in cluster.machines)
