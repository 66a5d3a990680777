"""Apps that wait say, all at once, what each of them says by its view."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from bid_cases import random_around, random_market

from am.agent.bidding import make_bid, make_report
from am.agent.waiting import _FEW, Waiting, WaitingApps
from themis.bids import RhoOf
from themis.choices import BundleRule
from themis.reports import Reports


def waiting_apps(rng, number):
    """Apps without GPUs and with jobs to run, the offer that they meet, and the cluster."""
    while True:
        apps, offer, _, cluster = random_market(rng, number, most_jobs=rng.choice([1, 4]))
        apps = [replace(app, held=(), app_id=f"app-{place}") for place, app in enumerate(apps) if app.jobs]
        if apps:
            return apps, offer, random_around(rng, cluster)


@pytest.mark.parametrize("rule", BundleRule)
def test_reports_and_bids_are_those_of_the_views(rule):
    rng, many, bids, alone = Random(f"{rule}"), 0, 0, 0
    for _ in range(60):
        apps, offer, around = waiting_apps(rng, rng.choice([2, 5, 3 * _FEW]))
        waiting, known = WaitingApps(), {}
        submitted_s = {app.app_id: rng.uniform(0.0, 500.0) for app in apps}
        for app in apps:
            around = replace(around, rule=rule)
            known[app.app_id] = Waiting(app, around)
            waiting.put(known[app.app_id], submitted_s[app.app_id], (float(app.contention), 0.0))
        many += len(apps) > _FEW
        # As time passes apps come and go, so that the share of each is another, and machines may be lost.
        for now_s in (500.0, 777.7, 5000.0):
            shares = [0.3, 1.0, 2.5, 3.0, 100.0]
            gpus = rng.choice([around.cluster_gpus, around.cluster_gpus, max(1, around.cluster_gpus // 2)])
            around = replace(around, cluster_gpus=gpus, active_apps=max(1, round(gpus / rng.choice(shares))))
            contentions = waiting.notes[0] * rng.uniform(1.0, 3.0)
            told = Reports({}, [waiting.reports(now_s, contentions, around, 7)])
            offer = replace(offer, now_s=now_s)
            together = waiting.bids([app.app_id for app in apps], offer, contentions, around)
            by_place = dict(zip(told, contentions.tolist(), strict=True))
            assert set(told) == {app.app_id for app in apps}
            ranked = sorted(told, key=lambda app_id: (-told[app_id].rho, app_id))
            assert all(told.worst(most) == ranked[:most] for most in range(1, len(ranked) + 2))
            assert told.wanting() == [(app_id, report.demands) for app_id, report in told.items()]
            for app in apps:
                elapsed_s = now_s - submitted_s[app.app_id]
                view = replace(app, elapsed_s=elapsed_s, contention=by_place[app.app_id])
                assert told[app.app_id] == make_report(view, around, 7)
                bid = known[app.app_id].bid(elapsed_s, by_place[app.app_id], offer, around)
                assert bid == make_bid(view, offer, around)
                bids += bool(bid.rows)
                if app.app_id in together:
                    assert together[app.app_id] == bid
                    alone += bool(bid.rows)
    assert many > 5
    assert bids > 100
    assert alone > 20


def test_who_does_not_wait_does_not_bid_with_the_others():
    apps, offer, around = waiting_apps(Random(5), 12)
    waiting = WaitingApps()
    assert waiting.bids(["nobody"], offer, np.ones(0), around) == {}
    for app in apps:
        waiting.put(Waiting(app, around), 0.0)
    waiting.drop(apps[0].app_id)
    asked = [apps[0].app_id, *(app.app_id for app in apps[-3:]), "nobody"]
    assert waiting.bids(asked, offer, np.ones(len(apps) - 1), around).keys() <= set(asked[1:-1])


def test_apps_that_stop_to_wait_or_wait_otherwise_leave_the_others_as_they_are():
    rng = Random(3)
    for _ in range(30):
        apps, _, around = waiting_apps(rng, 3 * _FEW)
        waiting, there = WaitingApps(), {}
        for _ in range(60):
            app = rng.choice(apps)
            if rng.random() < 0.4:
                waiting.drop(app.app_id)
                there.pop(app.app_id, None)
            else:
                job = replace(app.jobs[0], iterations_left=rng.randint(1, 500))
                there[app.app_id] = replace(app, jobs=(job, *app.jobs[1:])), rng.uniform(0.0, 100.0)
                waiting.put(Waiting(there[app.app_id][0], around), there[app.app_id][1], (there[app.app_id][1], 2.0))
            assert sorted(waiting.notes[0].tolist()) == sorted(since_s for _, since_s in there.values())
            told = Reports({}, [waiting.reports(200.0, np.full(len(there), 2.0), around, 1)])
            assert told == {
                name: make_report(replace(view, elapsed_s=200.0 - since_s, contention=2.0), around, 1)
                for name, (view, since_s) in there.items()
            }


def test_where_nobody_asks_for_rho_none_is_told():
    apps, _, around = waiting_apps(Random(4), 6)
    waiting = WaitingApps()
    for app in apps:
        waiting.put(Waiting(app, around), 0.0)
    told = Reports({}, [waiting.reports(10.0, np.ones(len(apps)), around, 1, RhoOf.NO_APP)])
    assert told.groups[0].tells(RhoOf.NO_APP) and not told.groups[0].tells(RhoOf.WANTING_APPS)
    for app in apps:
        brief, whole = told[app.app_id], make_report(app, around, 1)
        assert math.isnan(brief.rho) and math.isnan(brief.t_shared_s)
        assert (brief.demands, brief.phases_left) == (whole.demands, whole.phases_left)
