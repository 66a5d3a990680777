"""The ResourceManager with real app masters and tasks: the ordinary way, and every fault of one machine."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from authorized_stub import AuthorizedStub, LocalStub
from event_log_cases import stored_memory
from live_rm import Live, address_of, kill, live, replay_app, settings, start_process
from msgspec.structs import replace

from rm_plugin.arbiter.market_file import read_market
from rm_plugin.engines.local import LocalAppLauncher
from rm_plugin.policies.allox.estimator import extrapolate
from rm_plugin.service import app_masters, launches
from rm_plugin.service.session import Session
from rm_plugin.service.store_sqlite import SqliteReader, SqliteStore
from rm_plugin.solvers.registry import solver
from submarine_client.credentials import Credentials
from themis.apps import AppSpec, Estimate, JobShape, TunerSpec
from themis.cluster import GpuId
from themis.config.rm_settings import AuctionSettings, LeaseSettings
from themis.errors import UnreachableError
from themis.identity import token_of
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message
from themis_cli.auction_result import AuctionResult, hold_auction


def owners(live_: Live) -> dict[GpuId, str]:
    return {gpu: lease.app_id for gpu, lease in live_.server.manager.arbiter.table.live.items()}


def test_an_app_runs_to_its_end_and_names_its_best_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            app = await rm.submit(replay_app("search", iterations=80, jobs=4, tasks=2, tuner="successive_halving"))
            status = await rm.ended(app)
            assert status.state == "FINISHED"
            assert {job.state for job in status.jobs} == {"FINISHED", "STOPPED"}
            best = next(job for job in status.jobs if job.job_id == status.best)
            assert best.iteration == 80
            assert best.has_accuracy
            assert Path(status.best_checkpoint).is_dir()
            assert set(status.final_rho) == {
                "themis",
                "fluid",
                "isolated_fluid",
                "themis_fluid",
                "isolated_share",
                "placement_aware",
                "private_cluster",
                "attainable",
            }
            assert status.gpu_time_s > 0
            assert not owners(rm)

    asyncio.run(scenario())


def test_app_that_runs_shows_when_it_ends_and_one_that_waits_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            holder = await rm.submit(replay_app("holder", iterations=4000, jobs=4, tasks=4))
            status = await rm.wait(holder, lambda app: app.gpus > 0 and app.HasField("estimate"))
            assert status.estimate.first_gpu_s.high == 0.0
            assert 0.0 < status.estimate.end_s.low <= status.estimate.end_s.median <= status.estimate.end_s.high
            waits = await rm.submit(replay_app("waits", iterations=4000, jobs=4, tasks=4))
            assert (await rm.show(waits)).waiting.reason
            status = await rm.wait(waits, lambda app: app.HasField("estimate"))
            assert status.estimate.end_s.high > 0.0 and status.rho > 0.0

    asyncio.run(scenario())


def test_jobs_that_a_sampler_chooses_run_two_at_a_time(tmp_path: Path) -> None:
    """Six jobs are candidates, of which four are tried, though there is room for all."""
    chosen = {"sampler": "tpe", "startup_trials": 2, "trials": 4, "parallel": 2}

    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            six = replay_app("sampled", iterations=30, jobs=6)
            app = await rm.submit(replace(six, tuner=TunerSpec(name="optuna", settings=chosen)))
            status = await rm.ended(app)
            assert status.state == "FINISHED"
            assert sorted(job.state for job in status.jobs) == ["FINISHED"] * 4 + ["STOPPED"] * 2
            assert {job.iteration for job in status.jobs if job.state == "FINISHED"} == {30}
            assert next(job for job in status.jobs if job.job_id == status.best).state == "FINISHED"
            running = 0
            for event in rm.store.events(app_id=app):
                running += {"tasks_started": 1, "tasks_ended": -1}.get(event.kind, 0)
                assert 0 <= running <= 2
            assert len(rm.events("tasks_started", app)) == 4

    asyncio.run(scenario())


def test_two_apps_share_the_cluster_and_no_gpu_has_two_owners(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            apps = [await rm.submit(replay_app(f"app{n}", iterations=300, tasks=8)) for n in range(2)]
            for app in apps:
                assert (await rm.ended(app)).state == "FINISHED"
            held: dict[object, object] = {}
            for event in rm.store.events():
                gpu, lease = event.detail.get("gpu"), event.detail.get("lease_id")
                if event.kind == "lease_granted":
                    assert gpu not in held
                    held[gpu] = lease
                elif event.kind in ("lease_released", "lease_revoked") and not event.detail.get("reserved"):
                    assert held.pop(gpu) == lease
            assert not held

    asyncio.run(scenario())


def test_a_recorded_auction_can_be_replayed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path, policy="themis", auction=AuctionSettings(f=0.0, keep_markets=2))) as rm:
            apps = [await rm.submit(replay_app(f"app{n}", iterations=150, jobs=2, tasks=2)) for n in range(3)]
            for app in apps:
                assert (await rm.ended(app)).state == "FINISHED"
            auctions = {e.detail["round_id"]: e.detail for e in rm.events("round_auctioned") if e.detail["bidders"]}
            granted = {event.detail["round_id"]: event.detail["auction"] for event in rm.events("round_granted")}
            kept = sorted((tmp_path / "markets").iterdir())
            assert [path.name for path in kept] == [auctions[round_id]["market"] for round_id in sorted(auctions)[-2:]]
            for path, round_id in zip(kept, sorted(auctions)[-2:], strict=True):
                held = held_again(path, int(str(auctions[round_id]["seed"])))
                assert held.outcome.shares == auctions[round_id]["payments"]
                assert {app: gpus.by_machine() for app, gpus in held.kept.items() if gpus} == granted[round_id]

    asyncio.run(scenario())


def held_again(path: Path, seed: int) -> AuctionResult:
    market = read_market(path.read_bytes(), path.name)
    by = solver(AuctionSettings().solver)
    return hold_auction(market, by, seed=seed, rounding=AuctionSettings().rounding, time_limit_s=10.0)


def test_a_killed_app_master_restarts_and_continues(tmp_path: Path) -> None:
    async def scenario() -> None:
        # The restart must be over before a lease that was prolonged once ends.
        leases = LeaseSettings(duration_s=60, checkpoint_lead_s=1, grace_s=15)
        async with live(settings(tmp_path, lease=leases)) as rm:
            app = await rm.submit(replay_app("victim", iterations=150, jobs=2, tuner="successive_halving"))
            await rm.event("checkpoint", app, count=3)
            before = owners(rm)
            kill(int(rm.events("am_registered", app)[0].detail["pid"]))
            again = await rm.event("am_registered", app, count=2)
            assert again.detail["attempt"] == 2
            restarted = await rm.event("tasks_started", app, after=again.sequence)
            assert restarted.detail["incarnation"] == 2
            assert restarted.detail["iteration"] >= 20
            # Its leases waited for it: nothing was given up and granted again.
            lost = rm.events("am_lost", app)[0]
            ended = [*rm.events("lease_released", app), *rm.events("lease_revoked", app)]
            assert not [event for event in ended if lost.sequence < event.sequence < again.sequence]
            assert set(restarted.detail["gpus"]) <= {str(gpu) for gpu in before}
            status = await rm.ended(app)
            assert status.state == "FINISHED"
            assert status.attempts == 2

    asyncio.run(scenario())


def test_too_many_master_failures_end_the_app_and_free_its_gpus(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            app = await rm.submit(replay_app("doomed", iterations=5000))
            for attempt in (1, 2):
                await rm.event("first_step", app, count=attempt)
                kill(int(rm.events("am_registered", app)[attempt - 1].detail["pid"]))
            status = await rm.ended(app)
            assert status.state == "FAILED"
            assert "lost 2 times" in status.diagnostics
            assert not owners(rm)

    asyncio.run(scenario())


def test_a_killed_task_costs_one_restart_from_its_checkpoint(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            app = await rm.submit(replay_app("shot", iterations=120, tasks=2))
            started = await rm.event("tasks_started", app)
            saved = await rm.event("checkpoint", app, count=2)
            kill(int(started.detail["pids"][1]))
            again = await rm.event("tasks_started", app, count=2)
            assert again.detail["iteration"] >= saved.detail["iteration"]
            status = await rm.ended(app)
            assert status.state == "FINISHED"
            assert [job.restarts for job in status.jobs] == [1]

    asyncio.run(scenario())


def test_a_frozen_app_master_loses_its_gpus_by_force_after_the_grace(tmp_path: Path) -> None:
    async def scenario() -> None:
        lease = LeaseSettings(duration_s=4, checkpoint_lead_s=1, grace_s=5)
        # Its later attempts, and the other app, may be too slow for this grace.
        async with live(settings(tmp_path, am_expiry_s=60, lease=lease, am_max_attempts=20)) as rm:
            frozen = await rm.submit(replay_app("frozen", iterations=3000, tasks=8))
            await rm.event("first_step", frozen)
            pid = int(rm.events("am_registered", frozen)[0].detail["pid"])
            os.kill(pid, signal.SIGSTOP)
            other = await rm.submit(replay_app("other", iterations=60, tasks=8))
            # It is asked and does not answer, so its leases end; past the grace its processes are killed, then revoked.
            revoked = await rm.event("lease_revoked", frozen)
            assert "not given back" in str(revoked.detail["reason"])
            assert (await rm.ended(other)).state == "FINISHED"
            await rm.stub.Kill(_kill_request(frozen))
            status = await rm.ended(frozen)
            assert status.state == "KILLED", status.diagnostics

    asyncio.run(scenario())


def test_a_killed_app_stops_and_keeps_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            app = await rm.submit(replay_app("unwanted", iterations=3000, tasks=4))
            await rm.event("first_step", app)
            await rm.stub.Kill(_kill_request(app))
            status = await rm.ended(app)
            assert status.state == "KILLED"
            assert not owners(rm)
            ended = await rm.event("tasks_ended", app)
            assert set(ended.detail["exit_codes"]) == {75}

    asyncio.run(scenario())


def test_a_paused_app_gives_its_gpus_to_others_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Its checkpoint is from the pause, so no iteration is trained twice."""

    async def scenario() -> None:
        configured = settings(tmp_path)
        async with live(configured) as rm:
            app = await rm.submit(replay_app("polite", iterations=400, tasks=8))
            await rm.wait(app, lambda status: status.progress > 0.1)
            await rm.stub.Pause(pb.PauseRequest(app_id=app))
            status = await rm.wait(app, lambda status: status.state == "PAUSED")
            assert (status.gpus, owners(rm)) == (0, {})
            done = status.jobs[0].iteration
            saved = rm.events("tasks_ended", app)[-1].detail["iteration"]
            assert saved > 0
            other = await rm.submit(replay_app("other", iterations=20, tasks=8))
            assert (await rm.ended(other)).state == "FINISHED"
        async with live(configured) as rm:
            status = await rm.show(app)
            assert (status.state, status.jobs[0].iteration) == ("PAUSED", done)
            await asyncio.sleep(1.0)
            assert not owners(rm)
            await rm.stub.Resume(pb.ResumeRequest(app_id=app))
            await rm.event("first_step", app, count=2)
            status = await rm.ended(app)
            assert (status.state, status.attempts, status.jobs[0].iteration) == ("FINISHED", 2, 400)
            starts = [event.detail["iteration"] for event in rm.events("tasks_started", app)]
            assert starts[0] == 0
            assert saved in starts

    asyncio.run(scenario())


def test_a_killed_resource_manager_comes_back_to_its_apps_and_leases(tmp_path: Path) -> None:
    """The first one is a process that dies by kill -9; its successor, in this process, finds the app master."""

    async def scenario() -> None:
        # Neither its leases nor its work may end before a busy machine has started the successor.
        lease = LeaseSettings(duration_s=30, checkpoint_lead_s=1, grace_s=15)
        configured = settings(tmp_path, lease=lease)
        first = start_process(configured)
        try:
            async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                stub = LocalStub(rpc.ClientServiceStub(channel), address)
                spec = replay_app("survivor", iterations=800, tasks=4)
                app = (await stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)))).app_id
                while (await stub.Show(pb.ShowRequest(app_id=app))).progress == 0:
                    await asyncio.sleep(0.1)
                pids = {process.pid for process in first.children(recursive=True)}
        finally:
            first.kill()
            first.wait()
        async with live(configured) as rm:
            registered = await rm.event("am_registered", app, count=2)
            assert registered.detail["attempt"] == 1
            assert registered.detail["pid"] in pids
            assert len(owners(rm)) == 4
            status = await rm.ended(app)
            assert status.state == "FINISHED"
            assert status.attempts == 1
            assert len({event.detail["incarnation"] for event in rm.events("first_step", app)}) <= 3

    asyncio.run(scenario())


def test_oef_on_three_gpu_types_remembers_over_kill_9(tmp_path: Path) -> None:
    """The second process begins with what the policy of the first one remembered, and both apps end."""

    async def scenario() -> None:
        cluster = Path("conf/clusters/mixed-3.yaml").absolute()
        configured = settings(tmp_path, policy="oef", tenant_of="app", cluster=cluster)
        first = start_process(configured)
        try:
            async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                stub = LocalStub(rpc.ClientServiceStub(channel), address)
                specs = [replay_app(f"app{n}", iterations=400, tasks=4, jobs=3) for n in range(2)]
                apps = [(await stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)))).app_id for spec in specs]
                while not all([(await stub.Show(pb.ShowRequest(app_id=app))).progress > 0 for app in apps]):
                    await asyncio.sleep(0.1)
        finally:
            first.kill()
            first.wait()
        async with live(configured) as rm:
            restarted = next(event.sequence for event in rm.events("rm_started") if event.detail["recovered"])
            before = stored_memory(event for event in rm.events("round_granted") if event.sequence < restarted)
            after = await rm.event("round_granted", "", after=restarted)
            assert before
            assert set(after.detail["memory"]["speedups"]) == set(before["speedups"]) == set(apps)
            for app in apps:
                assert (await rm.ended(app)).state == "FINISHED"
            assert {event.detail["usable_left"] for event in rm.events("round_granted")} == {0}

    asyncio.run(scenario())


def test_under_oef_with_profiling_runs_an_app_runs_on_every_type_before_it_shares(tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Path("conf/clusters/mixed-3.yaml").absolute().absolute()
        # Fast enough to log on every type within a lease.
        quick = replay_app("mine", iterations=100_000, tasks=4, jobs=3)
        quick = replace(
            quick,
            estimate=Estimate(serial_iteration_s=0.3),
            program=replace(quick.program, arguments={"model": "resnet50", "serial_iteration_s": 0.3}),
        )
        # Long enough for steps on a busy machine, where a task takes seconds to start.
        lease = LeaseSettings(duration_s=6, checkpoint_lead_s=1, grace_s=15)
        async with live(settings(tmp_path, policy="oef", cluster=cluster, profiling_runs=True, lease=lease)) as rm:
            app = await rm.submit(quick)
            profiles: list[dict[str, Any]] = []
            async with asyncio.timeout(60):
                while not profiles or profiles[-1]["state"] != "done":
                    await asyncio.sleep(0.2)
                    memory = stored_memory(rm.events("round_granted"))
                    profiles += [memory["profiles"][app]] if memory and app in memory["profiles"] else []
            await rm.stub.Kill(pb.KillRequest(app_id=app))
            assert (await rm.ended(app)).state == "KILLED"
        assert "running" in [profile["state"] for profile in profiles]
        assert profiles[-1]["types"] == ["k80", "p100", "v100"]
        rates = profiles[-1]["rates"]
        assert {profile["job_id"] for profile in profiles} == {"job-00"}
        # Relative to the first type, and measured: close to the stated speeds of replayed jobs, but not equal to them.
        stated = [1.0, 0.94 / 0.3, 1.0 / 0.3]
        assert rates == pytest.approx(stated, rel=0.3)
        assert rates[0] == stated[0]
        assert rates[1] != pytest.approx(stated[1], rel=1e-6)
        assert rates[2] != pytest.approx(stated[2], rel=1e-6)

    asyncio.run(scenario())


HYBRID = """
name: hybrid
devices:
  gpu: {kind: gpu, emulated: true}
  cpu: {kind: cpu}
machines:
  - {prefix: g, count: 1, slots: [2], device: gpu, cpus: 4, racks: [rack0]}
  - {prefix: c, count: 1, slots: [1], device: cpu, cpus: 4, racks: [rack0]}
"""


def on_cpus_too(spec: AppSpec, user: str) -> AppSpec:
    """The app of a user, with jobs that also run on CPU nodes, at half the speed."""
    jobs = tuple(replace(job, speed_by_device={"cpu": 0.5}) for job in spec.jobs)
    return replace(spec, user=user, jobs=jobs)


def test_allox_on_gpus_and_cpus_keeps_every_start_over_kill_9(tmp_path: Path) -> None:
    """Six jobs on three devices: none is stopped or started twice, and progress is what it was."""
    cluster = tmp_path / "hybrid.yaml"
    cluster.write_text(HYBRID, encoding="utf-8")
    configured = settings(tmp_path, policy="allox", cluster=cluster)

    async def scenario() -> None:
        first = start_process(configured)
        try:
            async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                stub = LocalStub(rpc.ClientServiceStub(channel), address)
                specs = [on_cpus_too(replay_app(f"app{n}", iterations=100, jobs=3), f"user{n}") for n in range(2)]
                apps = [(await stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)))).app_id for spec in specs]
                while not all([(await stub.Show(pb.ShowRequest(app_id=app))).progress > 0 for app in apps]):
                    await asyncio.sleep(0.1)
        finally:
            first.kill()
            first.wait()
        async with live(configured) as rm:
            restarted = next(event.sequence for event in rm.events("rm_started") if event.detail["recovered"])
            before = stored_memory(event for event in rm.events("round_granted") if event.sequence < restarted)
            after = await rm.event("round_granted", "", after=restarted)
            known = {(app, job): told for app, jobs in before["running"].items() for job, told in jobs.items()}
            held = {
                (app, job): told
                for app, jobs in after.detail["memory"]["running"].items()
                for job, told in jobs.items()
            }
            assert known.keys() & held.keys()
            assert all(known[key] == held[key] for key in known.keys() & held.keys())
            for app in apps:
                assert (await rm.ended(app)).state == "FINISHED"
                started = [event.detail["job_id"] for event in rm.events("tasks_started", app)]
                assert sorted(started) == ["job-00", "job-01", "job-02"]
            types = {lease.detail["gpu"][0] for lease in rm.events("lease_granted")}
            assert types == {"g", "c"}
            assert all(lease.detail["job_id"] for lease in rm.events("lease_granted"))
            assert not rm.events("lease_expiring")

    asyncio.run(scenario())


@pytest.mark.slow
def test_allox_estimates_jobs_by_samples_and_kill_9_loses_none(tmp_path: Path) -> None:
    """The ResourceManager dies while the second type is sampled: the samples of the first count all the same."""
    cluster = tmp_path / "hybrid.yaml"
    cluster.write_text(HYBRID, encoding="utf-8")
    lease = LeaseSettings(duration_s=6, checkpoint_lead_s=1, grace_s=15)
    configured = settings(tmp_path, policy="allox", cluster=cluster, profiling_runs=True, lease=lease)
    # 100 iterations per second on a GPU, and 50 on the CPU node: 2 % of a job take a second or less.
    quick = on_cpus_too(replay_app("mine", iterations=2500, jobs=3), "user")
    quick = replace(
        quick,
        estimate=Estimate(serial_iteration_s=0.3),
        program=replace(quick.program, arguments={"model": "resnet50", "serial_iteration_s": 0.3, "log_every": 5}),
    )

    async def remembered(store: SqliteStore | SqliteReader, wanted: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(60):
            while not (memory := stored_memory(store.events())) or not wanted(memory):
                await asyncio.sleep(0.05)
        return memory

    async def scenario() -> None:
        first = start_process(configured)
        try:
            async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                message = pb.SubmitRequest(spec=app_to_message(quick))
                app = (await LocalStub(rpc.ClientServiceStub(channel), address).Submit(message)).app_id
                with closing(SqliteReader(tmp_path / "rm.sqlite")) as store:
                    before = await remembered(
                        store, lambda memory: app in memory["samples"] and memory["profiles"][app]["state"] == "running"
                    )
        finally:
            first.kill()
            first.wait()
        assert [each["device"] for each in before["samples"][app]] == ["cpu"]
        async with live(configured) as rm:
            after = await remembered(rm.store, lambda memory: memory["running"].get(app, {}).keys() - {"job-00"})
            assert after["profiles"][app]["state"] == "done"
            assert after["profiles"][app]["job_id"] == before["profiles"][app]["job_id"] == "job-00"
            samples = {each["device"]: each for each in after["samples"][app]}
            assert samples["cpu"]["seconds"] == before["samples"][app][0]["seconds"]
            # A replayed job is a small Python program.
            assert all(5.0 < each["memory_mb"] < 256.0 for each in samples.values())
            # Near the stated speeds, at which replayed jobs run.
            assert {name: slope(each) for name, each in samples.items()} == pytest.approx(
                {"cpu": 2.0, "gpu": 1.0}, rel=0.3
            )
            # The time of a job that was not sampled: a start, and the line through the samples of the GPU.
            on_gpu = samples["gpu"]
            line_s = extrapolate(
                *zip(on_gpu["work_gpu_s"], on_gpu["seconds"], strict=True), 2500 * 0.3 / configured.time_scale
            )
            other = next(job for name, job in after["running"][app].items() if name != "job-00")
            assert other["device_id"].startswith("g")
            assert 0.0 <= other["time_s"] - line_s < 10.0
            await rm.stub.Kill(pb.KillRequest(app_id=app))
            assert (await rm.ended(app)).state == "KILLED"

    def slope(sample: Any) -> float:
        (first_work, second_work), (first_s, second_s) = sample["work_gpu_s"], sample["seconds"]
        return float((second_s - first_s) / (second_work - first_work))

    asyncio.run(scenario())


def test_allox_refuses_an_app_whose_jobs_need_two_devices(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path, policy="allox")) as rm:
            with pytest.raises(grpc.aio.AioRpcError, match=r"policy allox gives each job one device.*themis") as caught:
                await rm.submit(with_gang_of_two(replay_app("gang", iterations=10, tasks=2)))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    asyncio.run(scenario())


def with_gang_of_two(spec: AppSpec) -> AppSpec:
    return replace(spec, jobs=tuple(replace(job, shape=JobShape(tasks=2, min_tasks=2)) for job in spec.jobs))


def test_stopping_the_resource_manager_in_good_order_costs_an_app_no_attempt(tmp_path: Path) -> None:
    async def scenario() -> None:
        configured = settings(tmp_path)
        app = ""
        for start in range(1, 4):
            async with live(configured) as rm:
                app = app or await rm.submit(replay_app("patient", iterations=200))
                await rm.event("checkpoint", app, count=start)
        async with live(configured) as rm:
            status = await rm.ended(app)
            assert status.state == "FINISHED", status.diagnostics
            assert status.attempts == 4

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["in good order", "by kill -9"])
def test_a_kill_completes_if_the_resource_manager_stops_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its app master is stopped (SIGSTOP), so that it cannot process messages."""
    monkeypatch.setattr(app_masters, "KILL_GRACE_S", 1.0)

    async def begun(stub: rpc.ClientServiceStub) -> str:
        spec = replay_app("unwanted", iterations=3000, tasks=4)
        app = str((await stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)))).app_id)
        while (await stub.Show(pb.ShowRequest(app_id=app))).progress == 0:
            await asyncio.sleep(0.1)
        return app

    async def stopped_at_once(stub: rpc.ClientServiceStub, app: str, store: SqliteStore | SqliteReader) -> None:
        (registered,) = [event for event in store.events(app_id=app) if event.kind == "am_registered"]
        os.kill(int(registered.detail["pid"]), signal.SIGSTOP)
        await stub.Kill(pb.KillRequest(app_id=app, reason="no longer wanted"))

    async def scenario() -> None:
        configured = settings(tmp_path)
        if how == "in good order":
            async with live(configured) as rm:
                app = await begun(rm.stub)
                await stopped_at_once(rm.stub, app, rm.store)
        else:
            first = start_process(configured)
            try:
                async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                    stub = LocalStub(rpc.ClientServiceStub(channel), address)
                    app = await begun(stub)
                    with closing(SqliteReader(configured.state_dir / "rm.sqlite")) as store:
                        await stopped_at_once(stub, app, store)
            finally:
                first.kill()
                first.wait()
        async with live(configured) as rm:
            status = await rm.ended(app)
            assert (status.state, status.diagnostics, status.attempts) == ("KILLED", "no longer wanted", 1)
            assert status.progress > 0
            assert not owners(rm)
            (wanted,) = rm.events("app_kill_wanted", app)
            assert wanted.detail == {"reason": "no longer wanted", "user": getpass.getuser()}
            assert not [event for event in rm.events("lease_granted", app) if event.sequence > wanted.sequence]

    asyncio.run(scenario())


def test_an_app_that_is_killed_while_the_engine_is_away_stays_killed_once_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ResourceManager has just restarted, and waits for the engine to report whether the app lives."""
    monkeypatch.setattr(launches, "RELAUNCH_EVERY_S", 0.2)
    away = True

    def unless_away(method: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def call(*arguments: object) -> object:
            if away:
                raise UnreachableError("the engine is unavailable", value="here")
            return await method(*arguments)

        return call

    for name in ("launch", "adopt"):
        monkeypatch.setattr(LocalAppLauncher, name, unless_away(getattr(LocalAppLauncher, name)))

    async def scenario() -> None:
        nonlocal away
        configured = settings(tmp_path)
        async with live(configured) as rm:
            app = await rm.submit(replay_app("waiting", iterations=50))

        async def kill_it() -> None:
            nonlocal away
            async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                # In a thread: this event loop is the ResourceManager's.
                (header,) = await asyncio.to_thread(Credentials(address).call, lambda metadata: metadata)
                stub = AuthorizedStub(rpc.ClientServiceStub(channel), lambda: token_of(header[1]))
                await stub.Kill(_kill_request(app))
                async with asyncio.timeout(60):
                    while (await stub.Show(pb.ShowRequest(app_id=app))).state != "KILLED":
                        await asyncio.sleep(0.05)
            away = False

        killing = asyncio.create_task(kill_it())
        async with live(configured) as rm:
            await killing
            assert (await rm.ended(app)).state == "KILLED"
            other = await rm.submit(replay_app("other", iterations=20))
            assert (await rm.ended(other)).state == "FINISHED"

    asyncio.run(scenario())


def test_a_relative_checkpoint_folder_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await rm.submit(replace(replay_app("lost", iterations=10), checkpoint_uri="checkpoints"))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    asyncio.run(scenario())


def test_a_job_that_always_fails_ends_its_app_with_the_reason(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            spec = replay_app("broken", iterations=50)
            bad = {**spec.program.arguments, "model": "no-such-model"}
            spec = replace(spec, program=replace(spec.program, arguments=bad))
            status = await rm.ended(await rm.submit(spec))
            assert status.state == "FAILED"
            assert "no-such-model" in status.diagnostics
            assert not owners(rm)

    asyncio.run(scenario())


@pytest.mark.parametrize(("tasks", "message"), [(9, "larger than the cluster"), (100, "larger than the cluster")])
def test_a_job_larger_than_the_cluster_is_refused(tmp_path: Path, tasks: int, message: str) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await rm.submit(replay_app("giant", iterations=10, tasks=tasks))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert message in refused.value.details()

    asyncio.run(scenario())


def test_a_reason_that_cannot_be_shown_is_refused_and_kills_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path)) as rm:
            app = await rm.submit(replay_app("spared", iterations=3000))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await rm.stub.Kill(pb.KillRequest(app_id=app, reason="\x1b[2Jno"))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "reason is not text that can be shown: '\\x1b[2Jno'" in refused.value.details()
            assert not rm.server.manager.entries.get(app).kill_reason

    asyncio.run(scenario())


def test_a_late_answer_is_dropped() -> None:
    async def scenario() -> None:
        session = Session("app-0001", 1)
        future = session.expect_report(1)
        session.forget(1)
        assert future.cancelled()

    asyncio.run(scenario())


def _kill_request(app_id: str) -> pb.KillRequest:
    return pb.KillRequest(app_id=app_id, reason="a test")
