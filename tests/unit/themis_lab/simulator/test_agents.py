import math

import pytest
from agent_cases import FLAT, STRICT, app_of, cluster_of, cluster_view_of, jobs_of, whole_offer
from msgspec.structs import replace
from sim_cases import FAR, app, cluster, job, settings, workload

from am.agent.bids.bidding import make_bid
from am.agent.bids.reports import make_report
from am.tuners.port import Phase
from themis.apps import JobShape
from themis.bids import RhoOf
from themis.errors import InputError
from themis.speeds import Speeds
from themis_lab.paper.strategies import lying_agent
from themis_lab.simulator.agents import (
    ErringAgent,
    HonestAgent,
    LyingAgent,
    lie_about_rho,
    lie_about_slowdown,
    lie_about_speed,
    lie_about_work,
    lie_by_factor,
    lie_by_largest_row,
    lie_throughout,
    with_slowdowns,
    with_work,
    wrong_statement_of_speed,
)
from themis_lab.simulator.simulation import Simulation

CLUSTER = cluster_of((2, 2), (2, 2))
CLUSTER_VIEW = cluster_view_of(CLUSTER)
OFFER = whole_offer(CLUSTER)
SPEEDS = Speeds.of([("k80", 1.0), ("p100", 2.0), ("v100", 3.0)])
FOUR = JobShape(tasks=4, min_tasks=1)


def an_app(slowdown=STRICT, **changes):
    jobs = tuple(
        replace(each, iterations_left=100, serial_iteration_s=each.serial_work_s) for each in jobs_of([50, 60])
    )
    jobs = tuple(replace(each, slowdown=slowdown, shape=FOUR) for each in jobs)
    return app_of(jobs, later_phases=(Phase(jobs=1, iterations=200),), elapsed_s=10.0, **changes)


class Recorder:
    """An honest agent that keeps what it was shown."""

    def __init__(self):
        self.seen = []

    def report(self, app, cluster_view, round_id, rho_of=RhoOf.EVERY_APP):
        self.seen.append(app)
        return make_report(app, cluster_view, round_id, rho_of)

    def bid(self, app, offer, cluster_view):
        self.seen.append(app)
        return make_bid(app, offer, cluster_view)


def test_the_honest_agent_is_the_production_agent():
    agent, mine = HonestAgent(), an_app()

    assert agent.report(mine, CLUSTER_VIEW, 7) == make_report(mine, CLUSTER_VIEW, 7)
    assert agent.bid(mine, OFFER, CLUSTER_VIEW) == make_bid(mine, OFFER, CLUSTER_VIEW)


# ---- erring ---------------------------------------------------------------------------------------------------------


def believed_by(error, seed, mine=None):
    inner = Recorder()
    agent = ErringAgent(inner, error, seed)
    agent.report(mine or an_app(), CLUSTER_VIEW, 1)
    agent.bid(mine or an_app(), OFFER, CLUSTER_VIEW)
    assert inner.seen[0] == inner.seen[1]
    return inner.seen[0]


def test_without_error_nothing_is_changed():
    assert believed_by(0.0, seed=3) == an_app()


@pytest.mark.parametrize("seed", range(20))
def test_errors_stay_within_their_bounds(seed):
    believed = believed_by(0.2, seed)

    for each in believed.jobs:
        assert 80 <= each.iterations_left <= 120
        assert 1.0 <= each.slowdown.rack / STRICT.rack * 1.25 <= 1.5
    assert 160 <= believed.later_phases[0].iterations <= 240
    assert believed.work_total_gpu_s == an_app().work_total_gpu_s


def test_errors_are_constant_per_app_and_differ_between_apps():
    one, other = believed_by(0.2, seed=1), believed_by(0.2, seed=2)

    assert len({each.iterations_left for each in one.jobs}) == 1
    assert believed_by(0.2, seed=1) == one
    assert one.jobs[0].iterations_left != other.jobs[0].iterations_left
    assert one.jobs[0].slowdown != other.jobs[0].slowdown


def test_iterations_and_slowdown_err_on_their_own():
    drawn = [believed_by(0.2, seed).jobs[0] for seed in range(12)]
    ups = {(each.iterations_left > 100, each.slowdown.rack > STRICT.rack) for each in drawn}

    assert ups == {(True, True), (True, False), (False, True), (False, False)}


def test_no_slowdown_is_believed_to_be_less_than_one():
    assert all(believed_by(0.5, seed, an_app(FLAT)).jobs[0].slowdown.slot >= 1.0 for seed in range(10))


@pytest.mark.parametrize("error", [-0.1, 1.0])
def test_an_error_out_of_range_is_refused(error):
    with pytest.raises(InputError, match="an error must be"):
        ErringAgent(HonestAgent(), error, 1)


def test_work_scales_and_never_vanishes():
    assert [each.iterations_left for each in with_work(an_app(), 2.0).jobs] == [200, 200]
    assert with_work(an_app(), 2.0).later_phases[0].iterations == 400
    assert [each.iterations_left for each in with_work(an_app(), 0.001).jobs] == [1, 1]


def test_the_reference_job_is_changed_with_the_others():
    mine = an_app(reference=an_app().jobs[0])

    assert with_slowdowns(mine, lambda _: FLAT).reference.slowdown == FLAT


# ---- lying ----------------------------------------------------------------------------------------------------------


def told_by(lie, mine=None):
    mine = mine or an_app()
    agent = LyingAgent(HonestAgent(), lie)
    return agent.report(mine, CLUSTER_VIEW, 1), agent.bid(mine, OFFER, CLUSTER_VIEW)


TRUE_REPORT, TRUE_BID = make_report(an_app(), CLUSTER_VIEW, 1), make_bid(an_app(), OFFER, CLUSTER_VIEW)


def test_a_lie_by_factor_changes_only_the_rows():
    report, bid = told_by(lie_by_factor(3.0))

    assert report == TRUE_REPORT
    assert bid.empty_value == TRUE_BID.empty_value
    assert [row.value for row in bid.rows] == pytest.approx([3.0 * row.value for row in TRUE_BID.rows])


def test_a_lie_by_the_largest_row_changes_that_one_alone():
    _, bid = told_by(lie_by_largest_row(2.0))
    changed = [place for place, row in enumerate(bid.rows) if row != TRUE_BID.rows[place]]

    assert len(changed) == 1
    row = TRUE_BID.rows[changed[0]]
    assert row.gpus == max(each.gpus for each in TRUE_BID.rows)
    assert row.value == max(each.value for each in TRUE_BID.rows if each.gpus == row.gpus)
    assert bid.rows[changed[0]].value == 2.0 * row.value


def test_of_equally_large_and_valued_rows_the_first_is_changed():
    largest = max(TRUE_BID.rows, key=lambda row: row.gpus)
    twice = replace(TRUE_BID, rows=(largest, largest))

    assert lie_by_largest_row(2.0).bid(twice).rows == (replace(largest, value=2.0 * largest.value), largest)


def test_a_bid_without_rows_has_no_largest_row():
    empty = replace(TRUE_BID, rows=())

    assert lie_by_largest_row(2.0).bid(empty) is empty


def test_a_lie_about_rho_changes_only_the_report():
    report, bid = told_by(lie_about_rho(2.0))

    assert report.rho == 2.0 * TRUE_REPORT.rho
    assert report.demands == TRUE_REPORT.demands
    assert bid == TRUE_BID


def test_a_lie_throughout_changes_report_and_bid():
    report, bid = told_by(lie_throughout(2.0))

    assert report.rho == 2.0 * TRUE_REPORT.rho
    assert bid.rows[0].value == 2.0 * TRUE_BID.rows[0].value


def test_a_lie_about_work_reaches_report_and_bid():
    report, bid = told_by(lie_about_work(2.0))

    assert report == make_report(with_work(an_app(), 2.0), CLUSTER_VIEW, 1)
    assert report.rho > TRUE_REPORT.rho
    assert bid == make_bid(with_work(an_app(), 2.0), OFFER, CLUSTER_VIEW)


def with_true_speeds(**changes):
    app = an_app(**changes)
    return replace(app, jobs=tuple(replace(job, speeds=SPEEDS) for job in app.jobs))


def timed(app, *devices):
    """The app after its first job ran for long enough on these types, in this order."""
    return replace(app, jobs=(replace(app.jobs[0], measured=devices), *app.jobs[1:]))


def speeds_of(app):
    return [dict(job.speeds.by_type) for job in app.jobs]


def test_a_lie_about_speed_changes_the_fastest_type_of_every_job():
    claimed = lie_about_speed(2.0).view(with_true_speeds())

    assert speeds_of(claimed) == [{"k80": 1.0, "p100": 2.0, "v100": 6.0}] * 2
    assert lie_about_speed(2.0).view(an_app()) == an_app(), "one device type"


def test_a_wrong_statement_of_speed_holds_until_a_job_was_timed_on_a_second_type():
    app, stated = with_true_speeds(), wrong_statement_of_speed(3.0).view
    wrong = [{"k80": 1.0, "p100": 2.0, "v100": 9.0}] * 2

    assert speeds_of(stated(app)) == wrong
    assert speeds_of(stated(timed(app, "k80"))) == wrong, "nothing to compare with"
    assert speeds_of(stated(timed(app, "k80", "v100"))) == speeds_of(app)
    assert stated(app).jobs[0].serial_iteration_s == app.jobs[0].serial_iteration_s


def test_a_job_that_was_not_timed_assumes_what_the_first_of_those_timed_on_most_types_measured():
    """The first ran on k80 first, whose stated speed is true. By the second, work would count three times."""
    app = with_true_speeds()
    timed_jobs = [
        replace(app.jobs[0], job_id=name, measured=types)
        for name, types in (("first", ("k80", "v100")), ("second", ("v100", "k80")))
    ]
    believed = wrong_statement_of_speed(3.0).view(replace(app, jobs=(*timed_jobs, app.jobs[1])))

    assert believed.jobs[2] == app.jobs[1]


def test_the_first_type_keeps_its_stated_speed_and_work_counts_in_its_units():
    app, stated = with_true_speeds(), wrong_statement_of_speed(3.0).view
    measured = stated(timed(app, "v100", "k80"))

    assert speeds_of(measured) == [{"k80": 3.0, "p100": 2.0, "v100": 9.0}] * 2
    times = [
        job.serial_iteration_s / true.serial_iteration_s for job, true in zip(measured.jobs, app.jobs, strict=True)
    ]
    assert times == [3.0, 3.0]


def test_the_lie_of_figure_18_makes_machines_apart_look_worse_and_one_machine_no_worse():
    claimed = lie_about_slowdown(0.5).view(an_app()).jobs[0].slowdown

    assert claimed.rack == 1.5 * STRICT.rack
    assert claimed.cluster == 1.5 * STRICT.cluster
    assert claimed.machine == 1.0 <= STRICT.machine
    assert claimed.slot == 1.0


@pytest.mark.parametrize("lie", [lie_by_factor(1.0), lie_by_largest_row(1.0), lie_about_rho(1.0), lie_about_work(1.0)])
def test_lie_by_factor_one_is_honest(lie):
    assert told_by(lie) == (TRUE_REPORT, TRUE_BID)


def test_a_lie_is_repeated_three_times_at_one_time_and_again_later():
    agent = LyingAgent(HonestAgent(), lie_about_rho(2.0))
    rhos = [agent.report(an_app(), CLUSTER_VIEW, round_id).rho / TRUE_REPORT.rho for round_id in range(5)]
    later = replace(an_app(), elapsed_s=11.0)

    assert rhos == [2.0, 2.0, 2.0, 1.0, 1.0]
    assert agent.report(later, CLUSTER_VIEW, 6).rho == 2.0 * make_report(later, CLUSTER_VIEW, 6).rho


def test_believing_ends_at_a_moment_too():
    inner = Recorder()
    agent = ErringAgent(inner, 0.2, 1)
    for round_id in range(4):
        agent.report(an_app(), CLUSTER_VIEW, round_id)

    assert inner.seen[2] != an_app()
    assert inner.seen[3] == an_app()


# ---- in runs --------------------------------------------------------------------------------------------------------


def test_rho_is_reported_only_if_requested():
    content = replace(an_app(), jobs=(), reference=an_app().median_job)
    for mine, reported in ((an_app(), (True, True, False)), (content, (True, False, False))):
        whole = make_report(mine, CLUSTER_VIEW, 7)
        for rho_of, tells in zip(RhoOf, reported, strict=True):
            brief = HonestAgent().report(mine, CLUSTER_VIEW, 7, rho_of)
            assert math.isnan(brief.rho) != tells
            fairness = {"rho": whole.rho, "t_shared_s": whole.t_shared_s, "t_ideal_s": whole.t_ideal_s}
            # Without demands and rho the work left may be left out.
            phases = whole.phases_left if tells or whole.demands else ()
            assert replace(brief, **fairness) == replace(whole, phases_left=phases)


def test_only_the_liar_lies_in_every_round():
    reported = {}

    class Spy:
        def __init__(self, inner):
            self._inner = inner

        def report(self, app, cluster_view, round_id, rho_of):
            report = self._inner.report(app, cluster_view, round_id)
            truth = make_report(app, cluster_view, round_id)
            reported.setdefault(app.app_id, []).append(report.rho / truth.rho)
            return report

        def bid(self, app, offer, cluster_view):
            return self._inner.bid(app, offer, cluster_view)

    apps = [app(name, job(iterations=10_000, gpus=4, least=1, slowdown=FAR)) for name in ("a", "b", "c")]
    lying = {"liar": "b", "lie": "rho", "amount": 2.0}
    Simulation(workload(*apps), settings(cluster((2, 2), (2,))), lambda each: Spy(lying_agent(each, **lying))).run()

    assert set(reported["b"]) == {2.0}
    assert set(reported["a"]) == set(reported["c"]) == {1.0}
    assert len(reported["b"]) > 2
