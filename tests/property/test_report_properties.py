"""Reports leave out what cannot matter, and say the same as if it had been worked out."""

from random import Random

import pytest
from bid_cases import random_around, random_market
from msgspec.structs import replace

from am.agent.bids.reports import make_report
from am.agent.model.demands import empty_bundle_s
from am.agent.model.fairness import Valuer
from am.agent.model.outlook import Outlook
from themis.choices import BundleRule


@pytest.mark.parametrize("rule", BundleRule)
def test_the_time_on_the_share_is_left_out_only_where_it_changes_nothing(rule):
    rng, left_out, kept = Random(f"{rule}"), 0, 0
    for _ in range(400):
        (app,), _, around, cluster = random_market(rng, 1, most_jobs=4)
        around = replace(random_around(rng, cluster), rule=rule, active_apps=rng.choice([1, 2, 3, 9]))
        if not app.jobs:
            continue
        time_s, switch_s = empty_bundle_s(app, around)
        outlook, whole = Outlook(app, around), Valuer.of(app, around)
        share_s = outlook.share_s(around, time_s)
        left_out += share_s > whole.share_s
        kept += share_s == whole.share_s
        assert make_report(app, around, 1).rho == whole.rho(time_s, switch_s)
    assert left_out > 20
    assert kept > 20


def test_what_jobs_take_at_least_is_no_more_than_what_they_take():
    rng = Random(2)
    for _ in range(300):
        (app,), _, around, _ = random_market(rng, 1, most_jobs=4)
        share_s = Valuer.of(app, around).share_s
        assert Outlook(app, around).share_s(around, share_s) == share_s
