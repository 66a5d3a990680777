"""Apps that are about to renew all they hold say, all at once, what each of them says by its view."""

from random import Random

import pytest
from agent_cases import CRUDE_SLOWDOWN, FLAT, STRICT, app_of, around_of, cluster_of, job
from msgspec.structs import replace

from am.agent.bidding import make_report
from am.agent.renewing import Renewing, renewing_reports
from am.app_view import held_gang
from themis.apps import JobShape, Slowdown
from themis.bids import RhoOf
from themis.choices import BundleRule
from themis.reports import Reports

CLUSTER = cluster_of((4, 4), (2, 2), (2, 2), (4,), (3,), (1,), racks=("r0", "r1"))


def running_app(rng, number):
    """An app of one job on a gang all of which is up for renewal."""
    least, unit = rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 1, 2])
    shape = JobShape(tasks=least + rng.randint(0, 4), min_tasks=least, gpus_per_task=unit)
    mine = rng.sample(sorted(CLUSTER.gpu_ids()), rng.randint(1, 6))
    slowdown = rng.choice([FLAT, CRUDE_SLOWDOWN, STRICT, Slowdown(1.0, 1.01, 1.3, 1.31)])
    app = app_of(
        [job("j", rng.randint(1, 4000), shape, slowdown)],
        held=(held_gang("j", mine, mine, CLUSTER),),
        restart_s=rng.choice([0.0, 3.0, 40.0]),
        contention=rng.uniform(1.0, 90.0),
    )
    return replace(app, app_id=f"app-{number}")


@pytest.mark.parametrize("rule", BundleRule)
@pytest.mark.parametrize("rho_of", RhoOf)
def test_reports_are_those_of_the_views(rule, rho_of):
    rng, parts, wholes = Random(f"{rule} {rho_of}"), 0, 0
    for _ in range(40):
        apps = [running_app(rng, number) for number in range(rng.choice([1, 3, 20]))]
        assert all(Renewing.suits(app) for app in apps)
        around = around_of(CLUSTER, active_apps=rng.choice([1, 3, 40]), lease_s=rng.choice([20.0, 600.0]), rule=rule)
        known = [Renewing(app, around) for app in apps]
        # Jobs go on, others come and go, and machines may be lost.
        for elapsed_s in (7.0, 777.7, 5000.0):
            gpus = rng.choice([CLUSTER.gpus, CLUSTER.gpus // 2])
            around = replace(around, cluster_gpus=gpus, active_apps=rng.choice([1, 2, 5, 40]))
            apps = [
                replace(
                    app,
                    elapsed_s=elapsed_s + number,
                    contention=rng.uniform(1.0, 90.0),
                    jobs=(replace(app.jobs[0], iterations_left=rng.randint(1, app.jobs[0].iterations_left)),),
                )
                for number, app in enumerate(apps)
            ]
            told = renewing_reports(
                known,
                [app.jobs[0] for app in apps],
                [app.elapsed_s for app in apps],
                [app.contention for app in apps],
                around,
                7,
                rho_of,
            )
            reports = Reports({}, [told])
            singly = {app.app_id: make_report(app, around, 7, rho_of) for app in apps}
            assert {app_id: repr(report) for app_id, report in reports.items()} == {
                app_id: repr(report) for app_id, report in singly.items()
            }
            assert told.tells(rho_of)
            assert told.wanting() == [(app_id, report.demands) for app_id, report in singly.items()]
            if rho_of is not RhoOf.NO_APP:
                ranked = sorted(singly, key=lambda app_id: (-singly[app_id].rho, app_id))
                assert all(reports.worst(most) == ranked[:most] for most in range(1, len(ranked) + 2))
            parts += sum(around.share_gpus < app.jobs[0].shape.demand_min_gpus for app in apps)
            wholes += sum(around.share_gpus >= app.jobs[0].shape.demand_min_gpus for app in apps)
    assert parts > 100
    assert wholes > 100


def test_apps_of_more_jobs_or_with_less_than_all_up_are_told_apart():
    app = running_app(Random(2), 1)
    gang, one = app.held[0], app.jobs[0]
    kept = held_gang("j", [], [], CLUSTER)
    assert not Renewing.suits(replace(app, jobs=(one, replace(one, job_id="k"))))
    assert not Renewing.suits(replace(app, held=()))
    assert not Renewing.suits(replace(app, held=(replace(gang, up=kept.gpus),)))
    assert not Renewing.suits(replace(app, held=(replace(gang, job_id="gone"),)))
    other = replace(one, shape=JobShape(tasks=9, min_tasks=9))
    assert not Renewing.suits(replace(app, reference=other))
