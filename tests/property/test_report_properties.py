"""Reports leave out times that cannot matter, and are equal to reports with all times."""

from random import Random

import pytest
from bid_cases import random_cluster_view, random_market
from msgspec.structs import replace

from am.agent.bids.reports import make_report
from am.agent.model.demands import empty_bundle_s
from am.agent.model.fairness import Valuer, cluster_time_s
from am.agent.model.outlook import Outlook, times_of
from themis.choices import BundleRule


@pytest.mark.parametrize("rule", BundleRule)
def test_time_on_share_is_left_out_only_if_rho_does_not_depend_on_it(rule):
    rng, left_out, kept = Random(f"{rule}"), 0, 0
    for _ in range(400):
        (app,), _, cluster_view, cluster = random_market(rng, 1, most_jobs=4)
        cluster_view = replace(random_cluster_view(rng, cluster), rule=rule, active_apps=rng.choice([1, 2, 3, 9]))
        if not app.jobs:
            continue
        time_s, switch_s = empty_bundle_s(app, cluster_view)
        whole = Valuer.of(app, cluster_view)
        share_s = times_of([Outlook(app, cluster_view)], cluster_view, share_if_sooner=True).share_s[0]
        left_out += share_s > whole.share_s
        kept += share_s == whole.share_s
        assert make_report(app, cluster_view, 1).rho == whole.rho(time_s, switch_s)
    assert left_out > 20
    assert kept > 20


def test_a_time_on_the_share_that_is_sooner_is_exact():
    rng, sooner = Random(2), 0
    for _ in range(300):
        (app,), _, cluster_view, _ = random_market(rng, 1, most_jobs=4)
        share_s = Valuer.of(app, cluster_view).share_s
        empty_s, _ = empty_bundle_s(app, cluster_view)
        if app.jobs and share_s <= empty_s:
            sooner += 1
            assert times_of([Outlook(app, cluster_view)], cluster_view, share_if_sooner=True).share_s[0] == share_s
    assert sooner > 100


def test_an_outlook_follows_the_number_of_active_apps_and_gpus():
    rng = Random(3)
    for _ in range(100):
        (app,), _, cluster_view, _ = random_market(rng, 1, most_jobs=4)
        outlook = Outlook(app, cluster_view)
        for active, gpus in ((1, 8), (3, 8), (9, 8), (3, 5), (1, 8)):
            now = replace(cluster_view, active_apps=active, cluster_gpus=gpus)
            times = times_of([outlook], now)
            assert times.share_s[0] == Valuer.of(app, now).share_s
            assert times.cluster_s[0] == cluster_time_s(app, now)
