"""OEF's placer and the plain one."""

import random

import pytest
from msgspec.structs import replace

from rm_plugin.policies.oef.placement import Host, HostGang, WaitingJob, place_compactly, place_plainly

HOSTS = tuple(Host(host_id=f"h{number}", type_number=number // 2, gpus=4) for number in range(6))


def job(job_id, gang=1, *, tenant="u", largest=None, starved=0, arrival=0.0, on=None):
    return WaitingJob(
        job_id=job_id,
        tenant_id=tenant,
        smallest=gang,
        largest=largest or gang,
        speedup=(1.0, 1.5, 2.0),
        starved_rounds=starved,
        arrival_s=arrival,
        runs_on=on,
    )


def gang(*parts, types):
    return HostGang(gpus_by_host=parts, type_numbers=types)


def test_the_longest_starved_job_runs_first():
    placed = place_compactly([job("a", arrival=1), job("b", starved=3, arrival=2)], HOSTS, {"u": (0, 0, 1)})
    assert list(placed) == ["b"]


def test_a_job_gets_the_fastest_type_with_enough_gpus():
    placed = place_compactly([job("a", 2)], HOSTS, {"u": (2, 2, 1)})
    assert placed["a"].type_numbers == (1,)


def test_an_elastic_job_takes_the_type_on_which_it_is_fastest():
    placed = place_compactly([job("a", 1, largest=4)], HOSTS, {"u": (4, 0, 1)})
    assert placed == {"a": gang(("h0", 4), types=(0,))}


def test_neighbouring_types_are_joined_only_if_no_type_suffices():
    placed = place_compactly([job("a", 4)], HOSTS, {"u": (3, 2, 2)})
    assert placed["a"].type_numbers == (1, 2)


def test_a_large_gang_gets_one_host_and_small_ones_the_tightest():
    jobs = [job("a", 1), job("b", 1), job("c", 4)]
    placed = place_compactly(jobs, HOSTS[:2], {"u": (6, 0, 0)})
    assert placed["c"] == gang(("h0", 4), types=(0,))
    assert placed["a"] == placed["b"] == gang(("h1", 1), types=(0,))


def test_of_equal_gangs_the_one_with_the_smaller_job_id_is_placed_first():
    granted = {"u": (4, 0, 0), "v": (4, 0, 0)}
    for tenants in (("u", "v"), ("v", "u")):
        jobs = [job(name, 4, tenant=tenant) for name, tenant in zip(("a", "b"), tenants, strict=True)]
        placed = place_compactly(jobs, HOSTS[:2], granted)
        assert placed == {"a": gang(("h0", 4), types=(0,)), "b": gang(("h1", 4), types=(0,))}


def test_a_running_job_stays_where_it_is():
    here = gang(("h1", 1), types=(0,))
    placed = place_compactly([job("a", on=here), job("b", 2)], HOSTS[:2], {"u": (3, 0, 0)})
    assert placed == {"a": here, "b": gang(("h1", 2), types=(0,))}


def test_a_running_job_moves_if_it_would_split_a_gang():
    jobs = [job("a", on=gang(("h0", 1), types=(0,))), job("b", on=gang(("h1", 1), types=(0,))), job("c", 4)]
    placed = place_compactly(jobs, HOSTS[:2], {"u": (6, 0, 0)})
    assert len(placed["c"].gpus_by_host) == 1


def test_a_job_on_a_lost_host_is_placed_again():
    placed = place_compactly([job("a", on=gang(("gone", 1), types=(0,)))], HOSTS[:2], {"u": (1, 0, 0)})
    assert placed["a"] == gang(("h0", 1), types=(0,))


def test_the_plain_placer_mixes_types():
    assert place_plainly([job("a", 4)], HOSTS, {"u": (2, 4, 4)})["a"].type_numbers == (0, 1)


@pytest.mark.parametrize("place", [place_compactly, place_plainly])
def test_a_job_gets_no_type_on_which_it_cannot_run(place):
    picky = replace(job("a", 2), speedup=(0.0, 1.0, 2.0))
    assert place([picky], HOSTS, {"u": (2, 1, 0)}) == {}
    assert place([picky], HOSTS, {"u": (2, 1, 1)})["a"].type_numbers == (1, 2)


@pytest.mark.parametrize("place", [place_compactly, place_plainly])
@pytest.mark.parametrize("seed", range(30))
def test_no_gpu_is_used_twice_and_no_tenant_exceeds_its_grant(place, seed):
    rng = random.Random(seed)
    granted = {"u": (3, 1, 4), "v": (5, 7, 4)}
    jobs = [
        job(f"j{number}", rng.choice((1, 1, 2, 4)), tenant=rng.choice("uv"), starved=rng.randint(0, 3))
        for number in range(12)
    ]
    for _ in range(4):
        placed = place(jobs, HOSTS, granted)
        for host in HOSTS:
            assert sum(dict(each.gpus_by_host).get(host.host_id, 0) for each in placed.values()) <= host.gpus
        for tenant, gpus in granted.items():
            used = sum(placed[each.job_id].gpus for each in jobs if each.tenant_id == tenant and each.job_id in placed)
            assert used <= sum(gpus)
        assert all(placed[each.job_id].gpus == each.smallest for each in jobs if each.job_id in placed)
        jobs = [
            job(
                each.job_id, each.smallest, tenant=each.tenant_id, on=placed.get(each.job_id), starved=rng.randint(0, 3)
            )
            for each in jobs
        ]
