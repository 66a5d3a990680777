"""What is cut from a report or a bid, rule by rule; an honest one comes back as it is."""

import math

import pytest
from agent_cases import cluster_of
from msgspec.structs import replace

from rm_plugin.service.budget import Budget
from rm_plugin.service.claims import AppFacts, checked_bid, checked_report, is_declared_anew, metered_gpu_s
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, Slowdown, TunerSpec
from themis.bids import AppReport, Bid, BidRow, GangDemand, GangRequest, PhaseLeft
from themis.choices import BundleRule
from themis.cluster import Allocation, DeviceType, Level
from themis.speeds import Speeds

CLUSTER = cluster_of((4,), (4,))
SPEC = AppSpec(
    user="user",
    name="x",
    tuner=TunerSpec(name="single"),
    program=ProgramSpec(command="train"),
    jobs=tuple(
        JobSpec(job_id=name, shape=JobShape(tasks=2, min_tasks=1, gpus_per_task=2), iterations_total=10)
        for name in ("j0", "j1")
    ),
)
FACTS = AppFacts(
    spec=SPEC,
    cluster=CLUSTER,
    available_gpus=8,
    free_gpus=8,
    kept=Allocation(),
    elapsed_s=100.0,
    attained_gpu_s=0.0,
    contention=2.0,
    active_apps=2,
    lease_s=600.0,
    rule=BundleRule.CONTINUATION,
)
FLAT = Slowdown(1.0, 1.0, 1.0, 1.0)


def demand(job="j0", least=2, most=4, **more):
    fields = {"unit_gpus": 2, "slowdown": FLAT, "work_left_gpu_s": 400.0, **more}
    return GangDemand(job_id=job, min_gpus=least, max_gpus=most, **fields)


def report(*demands, **more):
    """Two jobs of 400 GPU s: t_ideal = 2 * 800 / 8, and t_shared = 100 + 600 + 800 / 4."""
    phase = PhaseLeft(jobs=2, work_gpu_s=800.0, longest_gpu_s=400.0, gang_gpus=4)
    fields = {"rho": 4.5, "t_shared_s": 900.0, "t_ideal_s": 200.0, "phases_left": (phase,), "restart_s": 10.0, **more}
    return AppReport(app_id="x", round_id=1, demands=demands or (demand("j0"), demand("j1")), **fields)


def believed(claim, **facts):
    return checked_report(claim, replace(FACTS, **facts))[0]


def test_honest_report_is_believed_as_it_is():
    honest = report()
    assert checked_report(honest, FACTS) == (honest, ())
    assert checked_report(honest, FACTS)[0] is honest


@pytest.mark.parametrize(
    ("claim", "least", "most", "unit"),
    [
        (demand(most=64), 2, 4, 2),
        (demand(least=1, unit_gpus=1), 2, 4, 2),
        (demand(least=4, most=4), 4, 4, 2),
        (demand(most=2), 2, 2, 2),
    ],
)
def test_demand_is_within_the_shape_of_its_job(claim, least, most, unit):
    (first,) = believed(report(claim)).demands
    assert (first.min_gpus, first.max_gpus, first.unit_gpus) == (least, most, unit)


def test_job_demands_once():
    assert len(believed(report(demand("j0"), demand("j0"))).demands) == 1


def test_app_that_keeps_all_that_its_jobs_can_use_demands_nothing():
    kept = Allocation.of({"m0": 4, "m1": 4})
    assert believed(report(), kept=kept, free_gpus=0).demands == ()


def test_held_gang_is_among_the_leases():
    claim = demand(least=2, most=2, held=Allocation.of({"m0": 2}))
    assert believed(report(claim)).demands[0].held == Allocation()
    kept = Allocation.of({"m0": 2})
    assert believed(report(claim), kept=kept).demands == (claim,)


@pytest.mark.parametrize(("lease_s", "restart_s"), [(600.0, 600.0), (5.0, 60.0)])
def test_restart_costs_at_most_a_lease_or_a_minute(lease_s, restart_s):
    assert believed(report(restart_s=1e9), lease_s=lease_s).restart_s == restart_s


def test_slowdown_is_bounded():
    assert believed(report(demand(slowdown=Slowdown(1.0, 1.0, 50.0, 1e6)))).demands[0].slowdown.cluster == 10.0


def test_phase_has_the_jobs_of_the_app():
    (phase,) = believed(
        report(phases_left=(PhaseLeft(jobs=99, work_gpu_s=800.0, longest_gpu_s=9e9, gang_gpus=99),))
    ).phases_left
    assert (phase.jobs, phase.gang_gpus, phase.longest_gpu_s) == (2, 4, 800.0)


def test_rho_is_that_of_the_latest_believable_end():
    # 100 + 10 + 1.25 * 600 + 1.25 * (800 + 400) / 4 s over 200 s. The share are two gangs of two GPUs.
    assert believed(report(rho=1e9, t_shared_s=2e11)).rho == pytest.approx(1235.0 / 200.0)


@pytest.mark.parametrize(
    ("facts", "share_s"),
    [
        # One gang of two GPUs, for both jobs one after the other.
        ({"active_apps": 4}, 1.25 * 800 / 2),
        # Half of the smallest gang: twice as long.
        ({"active_apps": 8}, 1.25 * 800 / 2 * 2),
        # A machine is lost: of eight GPUs four are shared.
        ({"available_gpus": 4}, 1.25 * 800 / 2),
        # Two gangs of four GPUs.
        ({"active_apps": 1}, 1.25 * (800 + 400) / 8),
    ],
)
def test_latest_believable_end_is_on_the_fair_share(facts, share_s):
    shared_s = believed(report(rho=1e9, t_shared_s=2e11), **facts).t_shared_s
    assert shared_s == pytest.approx(100 + 10 + 1.25 * 600 + share_s)


@pytest.mark.parametrize(("active_apps", "slowdown"), [(1, 3.0), (2, 1.5)])
def test_latest_believable_end_has_s_of_the_level_at_which_the_gangs_of_the_share_fit(active_apps, slowdown):
    """Machines have two slots of two GPUs. Gangs of four GPUs span a machine, those of two fit into a slot."""
    far = Slowdown(1.5, 3.0, 5.0, 10.0)
    claim = report(demand("j0", slowdown=far), demand("j1", slowdown=far), rho=1e9, t_shared_s=2e11)
    cut = believed(claim, active_apps=active_apps, cluster=cluster_of((2, 2), (2, 2)))
    share_s = slowdown * (800 + 400) / (8 / active_apps)
    assert cut.t_shared_s == pytest.approx(100 + 10 + 1.25 * 600 + share_s)


@pytest.mark.parametrize("available_gpus", [0, 1])
def test_rho_is_bounded_if_the_machines_for_the_smallest_gang_are_gone(available_gpus):
    claim = report(rho=1e9, t_shared_s=2e11)
    assert 1.0 < believed(claim, cluster=cluster_of((1,)), available_gpus=available_gpus).rho < 100.0


def test_later_phases_are_believed_to_run_on_the_gpus_of_the_first():
    """Its one job can use four of eight GPUs."""
    phases = tuple(PhaseLeft(jobs=jobs, work_gpu_s=800.0, longest_gpu_s=800.0 / jobs, gang_gpus=4) for jobs in (1, 2))
    cut = believed(report(demand("j0"), rho=1e9, t_shared_s=2e11, phases_left=phases), active_apps=1)
    assert cut.t_shared_s == pytest.approx(100 + 10 + 1.25 * 600 + 1.25 * (800 / 4 + (800 + 400) / 4))


@pytest.mark.parametrize("by_type", [(("gpu", 1e-6),), (("gpu", 1.0), ("absent", 1e-6))])
def test_rho_counts_at_a_tenth_of_the_stated_speed_at_least(by_type):
    (device,) = CLUSTER.gpus_by_device
    speeds = Speeds(tuple((device if name == "gpu" else name, speed) for name, speed in by_type))
    honest, slow = believed(report(rho=1e9, t_shared_s=2e11)), report(demand(speeds=speeds), rho=1e9, t_shared_s=2e11)
    assert believed(slow).rho <= 10 * honest.rho


def test_ideal_time_holds_the_work_left():
    # 2 * 800 / 8 s, of which an honest app may declare 5 % too little.
    assert believed(report(rho=9e8, t_ideal_s=1e-6)).t_ideal_s == pytest.approx(200.0 / 1.05)


@pytest.mark.parametrize(("gpus", "ideal_s"), [(4, 400.0), (16, 200.0)])
def test_ideal_time_is_on_the_gpus_of_the_cluster_that_the_app_can_use(gpus, ideal_s):
    """The app can use eight."""
    claim = report(rho=9e8, t_ideal_s=1e-6)
    assert believed(claim, cluster=cluster_of((gpus,))).t_ideal_s == pytest.approx(ideal_s / 1.05)


def test_measured_speed_may_be_relative_to_that_on_the_slowest_type_of_the_specification():
    """The app runs on a k80 and measures a v100 to be 50 times as fast; stated was 10 times, and 100 are believed."""
    machines = [replace(machine, device=name) for machine, name in zip(CLUSTER.machines, ("k80", "v100"), strict=True)]
    devices = {name: DeviceType(name=name) for name in ("k80", "v100")}
    cluster = replace(CLUSTER, machines=tuple(machines), devices=devices)
    spec = replace(SPEC, jobs=tuple(replace(job, speed_by_device={"k80": 0.1}) for job in SPEC.jobs))
    claim = report(demand(speeds=Speeds((("v100", 50.0),))), rho=9e8, t_ideal_s=1e-6)
    assert believed(claim, cluster=cluster, spec=spec).t_ideal_s == pytest.approx(200.0 / 1.05 / 50.0)


def test_measured_speed_on_a_type_that_the_cluster_lacks_does_not_count():
    claim = report(demand(speeds=Speeds((("v100", 5.0),))), rho=9e8, t_ideal_s=1e-6)
    assert believed(claim).t_ideal_s == pytest.approx(200.0 / 1.05)


def test_ideal_time_holds_the_metered_work():
    # (100,000 * 0.5 / 1.25 - 600) / 1.25 GPU s, twice, on 8 GPUs.
    assert believed(report(), attained_gpu_s=1e5).t_ideal_s == pytest.approx(2 * (40_000 - 600) / 1.25 / 8)


def test_rho_that_is_not_the_quotient_of_its_times_is_replaced_by_it():
    assert believed(report(rho=1000.0)).rho == 4.5


def test_infinite_rho_is_believed_only_if_an_app_without_gpus_never_ends():
    never = report(rho=math.inf, t_shared_s=math.inf)
    assert believed(never).rho < 20.0
    assert believed(never, rule=BundleRule.LEXICOGRAPHIC).rho == math.inf


LITTLE = report(
    demand(work_left_gpu_s=1.0),
    phases_left=(PhaseLeft(jobs=1, work_gpu_s=1.0, longest_gpu_s=1.0),),
    rho=math.nan,
    t_shared_s=math.nan,
    t_ideal_s=math.nan,
)
"""An app that claims to have done nearly all."""


def test_app_that_overran_what_it_declared_has_as_much_left_as_it_has_had():
    # With S of 1.25, 1,500 of 1,875 GPU seconds were work.
    used_gpu_s = metered_gpu_s(replace(FACTS, attained_gpu_s=1_875.0))
    assert believed(LITTLE, claimed_gpu_s=720.0, attained_gpu_s=1_875.0).work_left_gpu_s == 1.0
    cut = believed(LITTLE, claimed_gpu_s=719.0, attained_gpu_s=1_875.0)
    assert cut.work_left_gpu_s == used_gpu_s == 1_500.0
    assert cut.demands[0].work_left_gpu_s == used_gpu_s


def test_work_of_an_app_that_overran_is_what_it_has_had_and_what_is_left():
    assert believed(report(), claimed_gpu_s=100.0, attained_gpu_s=5e4).t_ideal_s == pytest.approx(2 * 8e4 / 8)


def test_claimed_slowdown_explains_a_third_of_the_metered_time_at_most():
    slow = demand(slowdown=Slowdown(10.0, 10.0, 10.0, 10.0))
    assert metered_gpu_s(replace(FACTS, attained_gpu_s=3_000.0), [slow]) == 2_000.0


@pytest.mark.parametrize(
    ("used_gpu_s", "left_gpu_s", "more"),
    [(3_000.0, 12_000.0, True), (3_000.0, 7_000.0, False), (3_000.0, 7_400.0, False), (5_000.0, 12_000.0, False)],
)
def test_declaration_grows_until_half_of_it_is_metered(used_gpu_s, left_gpu_s, more):
    assert is_declared_anew(10_000.0, used_gpu_s, left_gpu_s) is more


# ---- bids -----------------------------------------------------------------------------------------------------------


def row(value, gpus=4, count=1):
    return BidRow(value=value, gangs=(GangRequest(gpus, Level.MACHINE, count, 2),))


def bid(*rows, empty=1 / 4.5):
    return Bid(app_id="x", round_id=1, empty_value=empty, rows=rows)


def test_honest_bid_is_believed_as_it_is():
    honest = bid(row(200.0 / 300.0), row(1.0, count=2))
    assert checked_bid(honest, report(), FACTS) == (honest, ())


@pytest.mark.parametrize("bad", [row(0.5, gpus=6), row(0.5, gpus=2, count=3), row(0.5, count=3)])
def test_row_that_no_job_can_use_is_dropped(bad):
    believed_bid, cuts = checked_bid(bid(row(0.5), bad), report(), FACTS)
    assert believed_bid.rows == (row(0.5),)
    assert cuts


@pytest.mark.parametrize(("free_gpus", "rows"), [(4, [4]), (8, [4, 8]), (12, [4, 8])])
def test_row_has_gpus_that_are_on_offer_and_no_more_than_the_app_can_use(free_gpus, rows):
    """It can use eight."""
    wanted = bid(row(0.1), row(0.2, count=2), BidRow(value=0.3, pinned=Allocation.of({"m0": 12})))
    cut, _ = checked_bid(wanted, report(), replace(FACTS, free_gpus=free_gpus))
    assert [each.gpus for each in cut.rows] == rows


def test_value_of_a_row_is_at_most_that_of_its_gpus_without_loss():
    # t_ideal 200 s over 100 s elapsed and 800 GPU s on 4 GPUs.
    (first,) = checked_bid(bid(row(1e9)), report(), FACTS)[0].rows
    assert first.value == pytest.approx(200.0 / 300.0)


def test_empty_bundle_is_worth_what_the_report_says():
    assert checked_bid(bid(row(0.5), empty=1e-9), report(), FACTS)[0].empty_value == pytest.approx(0.9 / 4.5)


# ---- budgets --------------------------------------------------------------------------------------------------------


def test_budget_refills_with_time_and_never_beyond_its_most():
    budget = Budget(3.0, 1.0)
    assert [budget.take(1.0, 10.0) for _ in range(4)] == [True, True, True, False]
    assert budget.take(1.0, 11.0)
    assert not budget.take(1.0, 11.0)
    assert [budget.take(1.0, 1e6) for _ in range(4)] == [True, True, True, False]


def test_budget_takes_nothing_back_if_the_clock_is_set_back():
    budget = Budget(1.0, 1.0)
    assert budget.take(1.0, 100.0)
    assert not budget.take(1.0, 50.0)


# ---- what the engine grants -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grantable", "most"), [(None, [4, 4]), (8, [4, 4]), (4, [4]), (3, [2]), (2, [2]), (1, []), (0, [])]
)
def test_demands_are_within_what_the_engine_grants(grantable, most):
    """Of one job each: the sum is cut elsewhere."""
    claim = report(demand("j0")) if grantable not in (None, 8) else report()
    demands = believed(claim, grantable_gpus=grantable).demands
    assert [(each.min_gpus, each.max_gpus) for each in demands] == [(2, gpus) for gpus in most]


def test_demand_for_all_that_the_engine_grants_is_not_cut():
    believed_report, cuts = checked_report(report(demand("j0")), replace(FACTS, grantable_gpus=4))
    assert (believed_report.demands[0].max_gpus, tuple(cuts)) == (4, ())


def test_gang_that_the_engine_would_not_grant_leaves_the_demand_of_a_smaller_job():
    demands = believed(report(demand("j0", least=4), demand("j1")), grantable_gpus=3).demands
    assert [(each.job_id, each.max_gpus) for each in demands] == [("j1", 2)]


def test_kept_gpus_are_of_those_that_the_engine_grants():
    assert believed(report(demand("j1")), grantable_gpus=4, kept=Allocation.of({"m0": 2})).demands[0].max_gpus == 2
    assert believed(report(demand("j1")), grantable_gpus=3, kept=Allocation.of({"m0": 2})).demands == ()


@pytest.mark.parametrize(("grantable", "rows"), [(None, 2), (6, 2), (5, 1), (3, 0)])
def test_rows_are_within_what_the_engine_grants(grantable, rows):
    gangs = [(GangRequest(gpus=gpus, within=Level.MACHINE, unit_gpus=2),) for gpus in (2, 4)]
    bid = Bid(app_id="x", round_id=1, empty_value=0.3, rows=tuple(BidRow(gangs=each, value=0.1) for each in gangs))
    facts = replace(FACTS, grantable_gpus=grantable, kept=Allocation.of({"m0": 2}))
    assert len(checked_bid(bid, report(), facts)[0].rows) == rows
