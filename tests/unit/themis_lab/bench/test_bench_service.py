"""`bench service`: its plan, its emulated engine and app masters, and its reading of rounds."""

import asyncio
import json
import math
from pathlib import Path

import pytest

from am.negotiator import Negotiator
from rm_plugin.engines.port import AmLaunch, NoLock
from rm_plugin.service.store_sqlite import SqliteStore
from themis.clock import VirtualClock
from themis.cluster import GpuId
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, cluster_to_message
from themis_cli.main import main
from themis_lab.bench.service_app_master import EmulatedApp
from themis_lab.bench.service_engine import EmulatedEngine, cluster_of, launch_file, orders_in
from themis_lab.bench.service_run import Quantiles, ServiceBenchPlan, _app, _rounds


@pytest.mark.parametrize(
    "options",
    [
        ["--apps", "0"],
        ["--waiting", "-1"],
        ["--gpus", "0"],
        ["--seconds", "nan"],
        ["--lease-s", "1"],
        ["--policy", "x"],
    ],
)
def test_bad_options_end_with_one_line_and_code_2(capsys, options):
    assert main(["bench", "service", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("gpus", "machines"), [(1, 1), (8, 1), (20, 3), (1000, 125)])
def test_cluster_has_the_gpus_that_were_asked_for(gpus, machines):
    cluster = cluster_of(gpus)
    assert (cluster.gpus, len(cluster.machines)) == (gpus, machines)


@pytest.mark.parametrize(("apps", "gpus", "gang"), [(200, 1000, 4), (200, 100, 1), (1, 64, 64), (3, 64, 16)])
def test_gang_is_largest_power_of_two_that_the_apps_have_room_for(apps, gpus, gang):
    assert ServiceBenchPlan(apps=apps, gpus=gpus).gang_gpus == gang


def test_launcher_orders_app_masters_from_their_drivers_and_reports_a_kill(tmp_path):
    async def scenario():
        exits = []

        async def ended(exit_):
            exits.append((exit_.app_id, exit_.attempt))

        launcher = EmulatedEngine(cluster_of(8), tmp_path, 2).launcher("run", ended, lambda _: (), NoLock())
        for app_id in ("app-0001", "app-0002"):
            launch = AmLaunch(app_id=app_id, attempt=1, environment={}, token="t", working_dir=Path())
            await launcher.launch(launch)
        await launcher.kill("app-0002")
        await launcher.kill("app-0002")
        assert exits == [("app-0002", 1)]

    asyncio.run(scenario())
    assert [orders(tmp_path, driver) for driver in (0, 1)] == [["app-0002", "kill app-0002"], ["app-0001"]]


def orders(folder, driver):
    lines = launch_file(folder, driver).read_bytes().splitlines()
    return [order.get("THEMIS_APP_ID") or f"kill {order['kill']}" for order in orders_in(lines)]


@pytest.fixture
def emulated():
    spec = _app(ServiceBenchPlan(apps=4, gpus=16), 0)
    registered = pb.Registered(
        spec=app_to_message(spec), cluster=cluster_to_message(cluster_of(16)), submitted_at_s=0.0, now_s=10.0,
        lease_s=20.0, checkpoint_lead_s=2.0, heartbeat_s=1.0, active_apps=4, contention=4.0,
        bundle_rule="continuation", app_id="app-0001", gpus_available=16,
    )  # fmt: skip
    return EmulatedApp(registered, VirtualClock(10.0))


def test_emulated_app_that_waits_reports_its_gang_and_bids_on_it(emulated):
    negotiator = Negotiator(emulated, dict)
    report = negotiator.report(pb.AskRho(round_id=3, now_s=10.0, contention=4.0, active_apps=4)).rho
    assert (report.round_id, [demand.max_gpus for demand in report.demands]) == (3, [4])
    assert math.isfinite(report.rho)
    offer = pb.Offer(
        round_id=3, now_s=10.0, lease_s=20.0, contention=4.0, active_apps=4,
        free=[pb.OfferedMachine(machine_id="m00000", free_slots=[2, 2, 2, 2])],
    )  # fmt: skip
    assert negotiator.bid(offer).bid.rows
    assert emulated.heartbeat().unmet_gpus == 4


def test_emulated_app_that_holds_its_gang_asks_for_nothing(emulated):
    emulated.reserved = frozenset(GpuId("m00000", place) for place in range(4))
    report = Negotiator(emulated, dict).report(pb.AskRho(round_id=1, now_s=10.0, contention=4.0, active_apps=4)).rho
    assert not [demand for demand in report.demands if demand.max_gpus]
    assert emulated.heartbeat().unmet_gpus == 0


def test_rounds_are_read_from_the_store_with_their_steps(tmp_path):
    store = SqliteStore(tmp_path / "rm.sqlite")
    with store.transaction() as transaction:
        for kind, at_s, detail in (
            ("round_started", 1.0, {}),
            ("round_reported", 1.5, {"rho": {"a": 1.0, "b": 1.0}, "absent": ["b", "c"], "kept": ["b"]}),
            ("job_state", 1.6, {}),
            ("round_granted", 2.5, {}),
            ("round_ended", 2.5, {"duration_ms": 1500.0}),
            ("round_ended", 99.0, {"duration_ms": 1.0}),
        ):
            transaction.append_event(kind, at_s, app_id="", detail=detail)
    store.close()
    rounds = _rounds(tmp_path / "rm.sqlite", 1.2, 10.0)
    assert (rounds.took_s, rounds.reports, rounds.reports_wanted) == ((1.5,), 1, 3)
    assert (rounds.steps_s["reports"], rounds.steps_s["bids"], rounds.steps_s["grants"]) == ((0.5,), (), (1.0,))


def test_quantiles_without_values_are_unknown():
    assert json.dumps([Quantiles.of([]).p50, Quantiles.of([3.0, 1.0]).p50]) == "[null, 1.0]"
