"""Agents of the experiments only: lies against baselines, and rho by other definitions."""

import pytest
from msgspec.structs import replace

from am.agent.bids.bidding import make_bid
from am.agent.bids.reports import make_report
from am.agent.model.fairness import ideal_times_s
from tests.agent_cases import STRICT, app_of, cluster_of, cluster_view_of, jobs_of, whole_offer
from themis.bids import LossForecast
from themis.rho import SCHEDULE_DEFINITIONS, RhoDefinition
from themis_lab.paper.strategies import FILTERS, OWN_LIES, RankedAgent, ranked_agent
from themis_lab.simulator.agents import HonestAgent, LyingAgent

CLUSTER = cluster_of((2, 2), (2, 2))
CLUSTER_VIEW = cluster_view_of(CLUSTER)
OFFER = whole_offer(CLUSTER)
FORECAST = LossForecast(floor=0.1, drop=2.0, scale=100.0, power=1.0, iteration=40, serial_iteration_s=1.0)


def an_app(**changes):
    return app_of(tuple(replace(job, slowdown=STRICT, forecast=FORECAST) for job in jobs_of([50, 60])), **changes)


def reported(lie, factor, mine):
    agent = LyingAgent(HonestAgent(), OWN_LIES[lie](factor))
    return agent.report(mine, CLUSTER_VIEW, 1), agent.bid(mine, OFFER, CLUSTER_VIEW)


@pytest.mark.parametrize("lie", OWN_LIES)
def test_lie_by_factor_one_is_honest(lie):
    mine = an_app()
    assert reported(lie, 1.0, mine) == (make_report(mine, CLUSTER_VIEW, 1), make_bid(mine, OFFER, CLUSTER_VIEW))


def test_strictness_scales_s_minus_one():
    report, _ = reported("strictness", 0.5, an_app())
    for demand in report.demands:
        assert demand.slowdown.rack == pytest.approx(1.0 + (STRICT.rack - 1.0) / 2.0)
        assert demand.slowdown.slot == STRICT.slot


def test_lie_about_loss_changes_forecasts_but_not_bids():
    mine = an_app()
    report, bid = reported("loss", 4.0, mine)
    for demand in report.demands:
        assert demand.forecast.iteration == 10
        assert demand.forecast.decrease(10, 20) > FORECAST.decrease(40, 20)
    assert bid == make_bid(mine, OFFER, CLUSTER_VIEW)


def test_lie_about_loss_needs_a_forecast():
    mine = app_of(jobs_of([50, 60]))
    assert reported("loss", 4.0, mine)[0] == make_report(mine, CLUSTER_VIEW, 1)


@pytest.mark.parametrize("definition", SCHEDULE_DEFINITIONS)
def test_ranked_agent_reports_rho_by_its_definition(definition):
    agent, new = RankedAgent(HonestAgent(), [definition]), an_app(contention=2.0)
    jobs = tuple(replace(job, iterations_left=1) for job in new.jobs)
    later = replace(new, elapsed_s=500.0, contention=8.0, jobs=jobs)

    assert agent.report(new, CLUSTER_VIEW, 1).t_ideal_s == pytest.approx(ideal_times_s(new, CLUSTER_VIEW)[definition])
    ideal_s = ideal_times_s(replace(new, contention=8.0), CLUSTER_VIEW)[definition]
    assert ideal_s != pytest.approx(ideal_times_s(new, CLUSTER_VIEW)[definition])
    report = agent.report(later, CLUSTER_VIEW, 2)
    assert report.rho == pytest.approx(make_report(later, CLUSTER_VIEW, 2).t_shared_s / ideal_s)
    assert report.demands == make_report(later, CLUSTER_VIEW, 2).demands
    assert agent.bid(later, OFFER, CLUSTER_VIEW) == make_bid(later, OFFER, CLUSTER_VIEW)


def test_two_definitions_use_the_geometric_mean():
    mine = an_app()
    ideals_s = ideal_times_s(mine, CLUSTER_VIEW)
    report = ranked_agent(None, "themis and isolated_share").report(mine, CLUSTER_VIEW, 1)
    product = ideals_s[RhoDefinition.THEMIS] * ideals_s[RhoDefinition.ISOLATED_SHARE]
    assert report.t_ideal_s**2 == pytest.approx(product)
    assert ideals_s[RhoDefinition.THEMIS] != pytest.approx(ideals_s[RhoDefinition.ISOLATED_SHARE])
    assert len(FILTERS) == 2
