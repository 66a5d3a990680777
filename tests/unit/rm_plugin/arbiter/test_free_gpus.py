"""Free GPUs: the table that follows every lease equals a table computed from scratch."""

import random

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.free_gpus import FreeGpus
from rm_plugin.arbiter.lease_table import LeaseTable
from themis.cluster import Cluster, GpuId, Machine
from themis.errors import InvariantError, UnknownNameError
from themis.leases import Lease


def cluster_of(*machines):
    return Cluster(name="c", machines=machines)


def machine(name, *slots, rack="r0"):
    return Machine(machine_id=name, rack_id=rack, slots=slots)


def leases_on(*gpus):
    return [
        Lease(lease_id=number, gpu=GpuId.parse(gpu), app_id="a", granted_at_s=0.0, expires_at_s=600.0)
        for number, gpu in enumerate(gpus, 1)
    ]


def seen(table):
    """What there is to give out, in order."""
    return table.offered_machines(()), table.free_gpus(), table.closed, table.lost, table.gpus_available


class TestAnotherCluster:
    OLD = cluster_of(machine("m0", 2, 2), machine("m1", 4), machine("m2", 2), machine("m3", 1, 1))
    NEW = cluster_of(machine("m3", 2), machine("m4", 8, rack="r1"), machine("m1", 4, rack="r1"), machine("m0", 2, 2))

    def table(self):
        table = LeaseTable(self.OLD, leases_on("m0/1", "m0/2"))
        for name in ("m1", "m2"):
            table.lose(name, now_s=0.0, reason="test")
        table.close([GpuId("m0", 3), GpuId("m2", 1)])
        table.offered_machines(())
        return table

    def test_it_is_as_if_it_had_always_been_there(self):
        table = self.table()
        table.refit(self.NEW)
        fresh = LeaseTable(self.NEW, leases_on("m0/1", "m0/2"), lost=("m1",))
        fresh.close([GpuId("m0", 3)])
        assert seen(table) == seen(fresh)
        table.validate()

    def test_lost_and_closed_gpus_are_free_after_they_return(self):
        table = self.table()
        table.refit(self.NEW)
        table.regain("m1")
        table.close(())
        assert seen(table) == seen(LeaseTable(self.NEW, leases_on("m0/1", "m0/2")))
        table.validate()

    def test_a_machine_with_leases_cannot_change(self):
        table = self.table()
        before = seen(table)
        with pytest.raises(InvariantError, match="cannot change"):
            table.refit(cluster_of(machine("m0", 4), machine("m1", 4)))
        assert seen(table) == before

    def test_free_gpus_have_another_version_after_each_change(self):
        """A round is played again only if they do."""
        table = self.table()
        versions = [table.free_version]
        for change in (
            lambda: table.close(()),
            lambda: table.regain("m2"),
            lambda: table.lose("m1", now_s=1.0, reason="test"),
            lambda: table.refit(self.NEW),
        ):
            change()
            versions.append(table.free_version)
        assert versions == sorted(set(versions))

    def test_the_free_gpus_of_another_cluster_are_found(self):
        free = FreeGpus(self.OLD)
        free.validate(self.OLD, {})
        with pytest.raises(InvariantError, match="another cluster"):
            free.validate(self.NEW, {})


@pytest.mark.parametrize("seed", range(30))
def test_incremental_changes_equal_a_fresh_count(seed):
    rng = random.Random(seed)
    cluster = cluster_of(*(machine(f"m{rng.randrange(10)}{n}", *rng.choices((0, 1, 3, 8), k=2)) for n in range(5)))
    free, leased, lost, closed = FreeGpus(cluster), set(), set(), set()
    gpus = sorted(gpu for each in cluster.machines for gpu in cluster.gpus_of(each.machine_id))
    for _ in range(60):
        gpu, name = rng.choice(gpus), rng.choice(cluster.machines).machine_id
        match rng.randrange(5):
            case 0:
                free.lease(gpu)
                leased.add(gpu)
            case 1 if gpu in leased:
                free.give_back(gpu)
                leased.discard(gpu)
            case 2:
                free.lose(name)
                lost.add(name)
            case 3:
                free.regain(name)
                lost.discard(name)
            case 4:
                closed = set(rng.sample(gpus, 2))
                free.close(closed)
        there = [
            gpu
            for each in cluster.machines
            for gpu in cluster.gpus_of(each.machine_id)
            if gpu not in leased | closed and each.machine_id not in lost
        ]
        assert free.gpus() == there
        assert [each.machine_id for each in free.offered(())] == [each.machine_id for each in cluster.machines]
        assert sum(each.free for each in free.offered(())) == len(there)


def test_gpus_of_unknown_machines_cannot_be_closed():
    free = FreeGpus(cluster_of(machine("m0", 2)))
    with pytest.raises(UnknownNameError, match="m7"):
        free.close([GpuId("m7", 0)])
    assert not free.closed


def test_no_machine_has_a_gpu_of_that_index():
    with pytest.raises(InvariantError, match="no machine can have"):
        LeaseTable(cluster_of(machine("m0", 2)), [replace(leases_on("m0/0")[0], gpu=GpuId("m0", -1))])
