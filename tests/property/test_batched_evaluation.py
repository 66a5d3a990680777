"""Reports and bids of many apps in one call equal those of each app alone, also as time passes and memory fills."""

import math
from random import Random

import numpy as np
import pytest
from bid_cases import random_cluster_view, random_market
from msgspec.structs import replace

from am.agent.bids.bidding import BidMemory, make_bid, make_bids
from am.agent.bids.reports import make_report, make_reports
from am.agent.model.outlook import Outlook
from themis.bids import RhoOf
from themis.choices import BundleRule


def random_apps(rng, number):
    """Apps with jobs, some of which hold GPUs; the offer that they meet, and the cluster."""
    apps, offer, _, cluster = random_market(rng, number, most_jobs=rng.choice([1, 4]))
    apps = [replace(app, app_id=f"app-{place}") for place, app in enumerate(apps)]
    return apps, offer, random_cluster_view(rng, cluster)


@pytest.mark.parametrize("rule", BundleRule)
def test_batched_reports_and_bids_equal_single_ones(rule):
    rng, memory, rows = Random(f"{rule}"), BidMemory(), 0
    for _ in range(40):
        apps, offer, cluster_view = random_apps(rng, rng.choice([2, 5, 24]))
        cluster_view = replace(cluster_view, rule=rule)
        outlooks = [Outlook(app, cluster_view) for app in apps]
        for passed_s in (0.0, 277.7, 5000.0):
            # As time passes other apps come and go, and machines may be lost.
            gpus = rng.choice([cluster_view.cluster_gpus, max(1, cluster_view.cluster_gpus // 2)])
            cluster_view = replace(
                cluster_view, cluster_gpus=gpus, active_apps=max(1, round(gpus / rng.choice([0.3, 1.0, 2.5])))
            )
            elapsed_s = np.array([app.elapsed_s + passed_s for app in apps])
            contentions = np.array([rng.uniform(1.0, 9.0) for _ in apps])
            now = [
                replace(app, elapsed_s=each_s, contention=contention)
                for app, each_s, contention in zip(apps, elapsed_s.tolist(), contentions.tolist(), strict=True)
            ]
            reports = make_reports(outlooks, elapsed_s, contentions, cluster_view, 7)
            assert reports == [make_report(app, cluster_view, 7) for app in now]
            bids = make_bids(outlooks, elapsed_s, contentions, offer, cluster_view, memory)
            assert bids == [make_bid(app, offer, cluster_view) for app in now]
            rows += sum(len(bid.rows) for bid in bids)
    assert rows > 100


@pytest.mark.parametrize("rho_of", RhoOf)
def test_only_apps_that_are_asked_report_rho(rho_of):
    rng = Random(4)
    for _ in range(20):
        apps, _, cluster_view = random_apps(rng, 6)
        outlooks = [Outlook(app, cluster_view) for app in apps]
        reports = make_reports(outlooks, np.full(len(apps), 9.0), np.ones(len(apps)), cluster_view, 1, rho_of)
        for app, report in zip(apps, reports, strict=True):
            whole = make_report(replace(app, elapsed_s=9.0, contention=1.0), cluster_view, 1)
            assert (report.app_id, report.demands, report.restart_s) == (app.app_id, whole.demands, app.restart_s)
            if rho_of.asks(report.demands):
                assert report == whole
            else:
                assert math.isnan(report.rho) and math.isnan(report.t_shared_s)
                assert report.phases_left == (whole.phases_left if whole.demands else ())


def test_no_apps_report_and_bid_nothing():
    _, offer, cluster_view = random_apps(Random(1), 1)
    none = np.zeros(0)
    assert make_reports([], none, none, cluster_view, 1) == make_bids([], none, none, offer, cluster_view) == []
