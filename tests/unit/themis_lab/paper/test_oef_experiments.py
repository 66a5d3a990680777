"""The round driver and the experiments on OEF."""

import math

import pytest

from themis_lab.paper.oef import completion, fairness, overheads
from themis_lab.paper.oef.driver import CROSS_HOST, run
from themis_lab.paper.oef.experiment import rule
from themis_lab.paper.oef.registry import EXPERIMENTS
from themis_lab.paper.oef.workload import ROUND_S, Job, TenantLoad, four_tenants, many_tenants, trace
from themis_lab.paper.output import section
from themis_lab.paper.own_runs import line
from themis_lab.paper.port import Scale
from themis_lab.paper.report_frame import csv_text
from themis_lab.paper.statistics import summary

SPEEDUP = (1.0, 1.5, 2.0)


def load(*jobs, name="u", **settings):
    made = tuple(
        Job(job_id=f"{name}-{place}", gang=gang, work_s=work_s, arrival_s=arrival_s)
        for place, (gang, work_s, arrival_s) in enumerate(jobs)
    )
    return TenantLoad(tenant_id=name, speedup=SPEEDUP, jobs=made, **settings)


def test_a_lone_job_runs_on_the_fastest_type():
    record = run([load((1, 3000.0, 0.0))], rule("cooperative"), compact=True, rounds=20)
    assert record.completion_s == {"u-0": pytest.approx(1500.0)}
    assert record.ended_s == {"u": pytest.approx(1500.0)}
    assert [tenants["u"].actual for tenants in record.rounds] == pytest.approx([2.0] * 5)


def test_a_job_starts_in_the_first_round_after_it_arrives():
    record = run([load((1, 600.0, 10.0))], rule("cooperative"), compact=True, rounds=20)
    assert record.completion_s == {"u-0": pytest.approx(ROUND_S - 10.0 + 300.0)}


def test_a_gang_over_hosts_runs_at_the_cross_host_efficiency():
    record = run([load((8, 2 * ROUND_S * CROSS_HOST, 0.0))], rule("cooperative"), compact=True, rounds=20)
    assert record.completion_s == {"u-0": pytest.approx(ROUND_S)}
    assert record.cross_host_gangs == 1


def test_a_gang_of_all_gpus_runs_at_the_slowest_type():
    record = run([load((24, ROUND_S * CROSS_HOST, 0.0))], rule("cooperative"), compact=True, rounds=20)
    assert record.completion_s == {"u-0": pytest.approx(ROUND_S)}
    assert record.straggler_workers == 24


def test_a_tenant_that_leaves_gives_its_gpus_to_the_others():
    stays, leaves = load((1, 1e9, 0.0)), load((1, 1e9, 0.0), name="v", leaves_s=2 * ROUND_S)
    record = run([stays, leaves], rule("noncooperative"), compact=True, rounds=4)
    assert [set(tenants) for tenants in record.rounds] == [{"u", "v"}, {"u", "v"}, {"u"}, {"u"}]


def test_a_lie_changes_the_shares_and_not_the_speed():
    liar = load((4, 1e9, 0.0), claimed=(1.0, 3.0, 4.0))
    record = run([liar], rule("cooperative"), compact=True, rounds=1)
    assert record.rounds[0]["u"].actual == pytest.approx(4 * 2.0)


def test_a_tenant_alone_is_treated_fairly():
    alone = load((4, 3000.0, 0.0))
    record = run([alone], rule("cooperative"), compact=True, rounds=20)
    assert completion.tenant_rho(alone, record) == pytest.approx(1.0)


@pytest.mark.parametrize("compact", [True, False])
def test_no_run_assigns_more_gpus_than_the_cluster_has(compact):
    loads = trace(3, tenants=8, jobs=4, median_s=3600.0, arrivals_s=7200.0)
    record = run(loads, rule("cooperative"), compact=compact, rounds=100)
    fastest = max(each.speedup[2] for each in loads)
    assert all(sum(tenant.actual for tenant in tenants.values()) <= 24 * fastest for tenants in record.rounds)


def test_equal_seeds_give_equal_bytes():
    experiment = fairness.EXPERIMENTS[1]
    one, other = (experiment.run(Scale.QUICK, 1) for _ in range(2))
    assert csv_text(one.rows) == csv_text(other.rows)
    assert section(experiment, one).text() == section(experiment, other).text()


def test_seeds_draw_other_workloads():
    assert many_tenants(1, 5) != many_tenants(2, 5)
    assert four_tenants(1, ascending=True) != four_tenants(2, ascending=True)


def test_a_median_outside_the_band_is_said():
    inside = line("x", summary([1.0]), band=(0.5, 1.5), why="Because.")
    outside = line("x", summary([2.0]), band=(0.5, 1.5), why="Because.")
    assert (inside.remark, outside.remark) == ("Because.", "outside the band 0.5 to 1.5. Because.")


def test_a_seed_outside_the_band_is_said_though_the_median_is_within():
    some = line("x", summary([1.0, 1.2, 2.0]), band=(0.5, 1.5), why="Because.")
    assert some.remark == "the median is within, but some seeds are outside the band 0.5 to 1.5. Because."
    assert line("x", summary([0.5, 1.2, 1.5]), band=(0.5, 1.5)).remark == ""


def test_errors_of_profiles_cost_nothing_without_errors():
    assert overheads._deviations(1, 0.0, "cooperative") == pytest.approx(
        {"deviation": 0.0, "deviation of a tenant": 0.0}, abs=1e-9
    )


def test_names_are_valid_file_names_for_the_page():
    names = [experiment.name for experiment in EXPERIMENTS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("oef_fig") and name.isidentifier() for name in names)


def test_rho_of_a_tenant_includes_its_waiting():
    slow, other = load((24, 3000.0, 0.0)), load((24, 3000.0, 0.0), name="v")
    record = run([slow, other], rule("max_min"), compact=True, rounds=100)
    assert len(record.completion_s) == 2
    assert all(completion.tenant_rho(each, record) >= 1.0 for each in (slow, other))
    assert math.isfinite(completion.measures([slow, other], record)["max rho"])
