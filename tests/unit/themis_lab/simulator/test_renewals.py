"""Apps whose leases end and are renewed: which of them need no further look, and that none is thought to need none."""

from types import SimpleNamespace

import pytest
from agent_cases import STRICT, app_of, around_of, cluster_of, job
from msgspec.structs import replace
from sim_cases import COSTS, FREE, cluster, settings, workload
from sim_cases import app as app_trace
from sim_cases import job as job_trace

from am.agent.renewing import Renewing
from am.app_view import held_gang
from rm_plugin.arbiter.core import LeasePolicy
from themis.apps import JobShape
from themis.choices import LeaseEnds
from themis.cluster import GpuId
from themis.leases import Lease
from themis_lab.simulator.renewals import Renewals
from themis_lab.simulator.settings import NodeOutage
from themis_lab.simulator.simulation import Simulation

HERE = cluster_of((4,), (4,))


def sim_app(name, up=2):
    """What `Renewals` asks of an app on two GPUs, of which so many are up for renewal."""
    mine = sorted(HERE.gpu_ids())[:2]
    held = (held_gang("j", mine, mine[:up], HERE),)
    view = replace(app_of([job("j", 100, JobShape(tasks=2), STRICT)], held=held), app_id=name)
    return SimpleNamespace(app_id=name, view=lambda *_, **__: view)


def lease(app_id, end_s, index=0):
    return Lease(lease_id=1 + index, gpu=GpuId("m0", index), app_id=app_id, granted_at_s=0.0, expires_at_s=end_s)


def come_up(renewals, app):
    return renewals.come_up(app, 570.0, 600.0, around_of(HERE))


def test_all_leases_of_an_app_renewed_as_one_are_its_next_lease():
    renewals = Renewals()
    assert come_up(renewals, sim_app("a"))
    assert all(renewals.hear(lease("a", 1200.0, index)) for index in range(2))
    assert renewals.take_renewed() == {"a": 1200.0}
    assert not renewals.up
    assert renewals.take_renewed() == {}
    assert come_up(renewals, sim_app("a"))


@pytest.mark.parametrize("ends_s", [(1200.0,), (1200.0, 1300.0), (1200.0, 1200.0, 1200.0)])
def test_leases_renewed_in_part_or_to_other_ends_need_a_look(ends_s):
    renewals = Renewals()
    come_up(renewals, sim_app("a"))
    for index, end_s in enumerate(ends_s):
        renewals.hear(lease("a", end_s, index))
    assert renewals.take_renewed() == {"a": None}


def test_apps_with_a_part_of_their_gang_up_are_none_of_them():
    renewals = Renewals()
    assert not come_up(renewals, sim_app("a", up=1))
    assert not renewals.hear(lease("a", 1200.0))
    assert renewals.take_renewed() == {}


def test_one_to_which_something_else_happened_is_forgotten():
    renewals = Renewals()
    come_up(renewals, sim_app("a"))
    renewals.hear(lease("a", 1200.0))
    renewals.drop("a")
    assert not renewals.up
    assert renewals.take_renewed() == {}
    assert not come_up(renewals, sim_app("a", up=1))


@pytest.mark.parametrize("ends", LeaseEnds)
@pytest.mark.parametrize("costs", [COSTS, FREE])
def test_what_is_known_of_apps_without_a_look_is_what_a_look_finds(ends, costs):
    lone = [
        app_trace(f"a{n:02}", job_trace("j0", 700 + 130 * n, gpus=1 + n % 3), at_s=11.0 * (n // 5)) for n in range(30)
    ]
    more = [app_trace(f"b{n}", job_trace("j0", 900), job_trace("j1", 1500, gpus=2), at_s=50.0 * n) for n in range(3)]
    leases = LeasePolicy(duration_s=200.0, checkpoint_lead_s=costs.checkpoint_s, ends=ends)
    outages = (NodeOutage(machine_id="m1", lost_at_s=450.0, back_at_s=700.0),)
    run = Simulation(
        workload(*lone, *more), settings(cluster((4,) * 5, (2,)), costs=costs, leases=leases, outages=outages)
    )
    answers, up, content = run._answers, 0, 0
    settled = answers._settle

    def settle_and_look(snapshot):
        nonlocal up, content
        settled(snapshot)
        until_s = answers._up_until_s
        for app_id, end_s in answers._content_until_s.items():
            app = run.apps[app_id]
            app._holds = None
            assert app.is_content(until_s) and app.same_until_s(until_s) == end_s
            content += 1
        for app_id, known in answers._renewals.up.items():
            view = run.apps[app_id].view(snapshot.now_s, until_s, contention=1.0)
            assert Renewing.suits(view) and view.held[0].gpus.gpus == known.gpus
            up += 1

    answers._settle = settle_and_look
    run.run()
    assert not run.counts.violations
    assert up > 30
    assert content > 30
