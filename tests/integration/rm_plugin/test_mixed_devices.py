"""OEF and AlloX live on GPUs of several types and CPU nodes: cores of tasks, samples, and types that come and go."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import grpc
import psutil
import pytest
import yaml
from authorized_stub import LocalStub
from live_rm import Live, address_of, kill, live, replay_app, settings, start_process
from msgspec.structs import replace

from rm_plugin.engines.engine import LocalEngine
from rm_plugin.engines.inventory import FixedInventory, Node, NodeState
from themis.apps import AppSpec, Estimate
from themis.choices import LeaseEnds
from themis.cluster import Machine
from themis.config.cluster_file import load_cluster
from themis.config.rm_settings import LeaseSettings
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message
from themis_lab.testbed.audit import audit
from themis_lab.testbed.audit_values import AuditInput
from themis_lab.testbed.events import Event
from themis_lab.testbed.run_record import audit_limits

CLUSTER = {
    "name": "mixed",
    "devices": {
        "k80": {"speed": 0.5, "emulated": True},
        "v100": {"speed": 2, "emulated": True},
        "cpu": {"kind": "cpu"},
    },
    "machines": [
        {"prefix": "k", "slots": [2], "device": "k80", "racks": ["r0"]},
        {"prefix": "c", "slots": [1], "device": "cpu", "cpus": 1, "racks": ["r0"]},
    ],
}
V100_MACHINE = {"prefix": "v", "slots": [1], "device": "v100", "racks": ["r0"]}
V100 = Machine(machine_id="v00", rack_id="r0", slots=(1,), device="v100")


class ChangingEngine(LocalEngine):
    """Processes of this machine; a test changes the machines."""

    poll_s = 0.2

    def __init__(self, path: Path) -> None:
        super().__init__(load_cluster(path))
        self.machines = FixedInventory(self._cluster)

    def inventory(self) -> FixedInventory:
        return self.machines

    def see(self, machine: Machine, state: NodeState, reason: str = "") -> None:
        others = [node for node in self.machines.nodes if node.machine.machine_id != machine.machine_id]
        self.machines.nodes = (*others, Node(machine=machine, state=state, reason=reason))


def cluster_file(folder: Path) -> Path:
    path = folder / "mixed.yaml"
    path.write_text(yaml.safe_dump(CLUSTER))
    return path


def app_for_every_type(name: str, *, jobs: int, iterations: int) -> AppSpec:
    spec = replay_app(name, iterations=iterations, jobs=jobs)
    return replace(spec, jobs=tuple(replace(job, speed_by_device={"cpu": 1.0}) for job in spec.jobs))


async def started_on(rm: Live, app_id: str, machine_id: str, *, count: int = 1) -> dict[str, object]:
    """The event of the start of tasks on a machine."""
    async with asyncio.timeout(30):
        while True:
            found = [
                event.detail
                for event in rm.events("tasks_started", app_id)
                if any(gpu.startswith(f"{machine_id}/") for gpu in event.detail["gpus"])
            ]
            if len(found) >= count:
                return found[count - 1]
            await asyncio.sleep(0.05)


def violations(rm: Live, configured, machines: tuple[Machine, ...]) -> tuple[str, ...]:
    events = tuple(
        Event(sequence=each.sequence, time_s=each.time_s, kind=each.kind, app_id=each.app_id, detail=dict(each.detail))
        for each in rm.store.events()
    )
    gpus = tuple(f"{machine.machine_id}/{index}" for machine in machines for index in range(machine.gpus))
    devices = {machine.machine_id: machine.device for machine in machines}
    return audit(
        AuditInput(
            events=events, gpus=gpus, limits=replace(audit_limits(configured, 1), round_s=60.0), device_of=devices
        )
    ).violations


def test_task_on_a_cpu_node_is_pinned_to_its_cores_and_others_are_not(tmp_path: Path) -> None:
    configured = settings(tmp_path, cluster=cluster_file(tmp_path), policy="oef")

    async def scenario() -> None:
        async with live(configured) as rm:
            app_id = await rm.submit(app_for_every_type("pinned", jobs=3, iterations=2000))
            on_cpu, on_gpu = await started_on(rm, app_id, "c00"), await started_on(rm, app_id, "k00")
            task, other = (psutil.Process(detail["pids"][0]) for detail in (on_cpu, on_gpu))
            first = min(os.sched_getaffinity(0))
            async with asyncio.timeout(60):
                # It is reported before its guard has become the program, and has no environment at that moment.
                while task.cpu_affinity() != [first] or "THEMIS_DEVICE" not in task.environ():
                    await asyncio.sleep(0.05)
            assert set(other.cpu_affinity()) == os.sched_getaffinity(0)
            environment = task.environ()
            assert (environment["THEMIS_DEVICE"], environment["OMP_NUM_THREADS"]) == ("cpu", "1")
            assert "OMP_NUM_THREADS" not in other.environ()
            status = await rm.wait(app_id, lambda status: any(job.device == "cpu" for job in status.jobs))
            explained = {line.label: line.text for line in status.explanation}
            assert explained["Speedups"] == "k80 1, cpu 2"
            assert explained["Fair share"] == "2 k80, 1 cpu of 2 k80, 1 cpu"
            worth = "k80: worth 1 to all, 1 to this tenant; cpu: worth 2 to all, 2 to this tenant; in k80 GPUs"
            assert explained["One more"] == worth

    asyncio.run(scenario())


def test_node_of_a_new_type_joins_and_disappears_and_no_job_is_lost(tmp_path: Path) -> None:
    path = cluster_file(tmp_path)
    configured = settings(tmp_path, cluster=path, policy="oef")
    engine = ChangingEngine(path)

    async def scenario() -> None:
        async with live(configured, engine) as rm:
            app_id = await rm.submit(app_for_every_type("all", jobs=4, iterations=300))
            await started_on(rm, app_id, "k00", count=2)
            engine.see(V100, NodeState.USABLE)
            detail = await started_on(rm, app_id, "v00")
            status = await rm.show(app_id)
            assert "v100 4" in next(line.text for line in status.explanation if line.label == "Speedups")
            # Long enough for a checkpoint.
            await rm.event("checkpoint", app_id)
            engine.see(V100, NodeState.LOST, "unplugged")
            assert (await rm.event("machine_lost", "")).detail["reason"] == "unplugged"
            status = await rm.ended(app_id, 60)
            assert (status.state, status.attempts) == ("FINISHED", 1)
            assert {job.iteration for job in status.jobs} == {300}
            assert detail["job_id"] in {job.job_id for job in status.jobs}
            assert violations(rm, configured, (*engine._cluster.machines, V100)) == ()

    asyncio.run(scenario())


@pytest.mark.parametrize("policy", ["fair_finish", "allox", "oef"])
def test_machines_that_come_and_go_while_the_resource_manager_is_down(tmp_path: Path, policy: str) -> None:
    """An app master that outlives it learns of them as it registers again: it may get leases on them at once."""
    path = cluster_file(tmp_path)
    configured = settings(tmp_path, cluster=path, policy=policy)

    async def scenario() -> None:
        first = start_process(configured)
        try:
            async with grpc.aio.insecure_channel(address := await address_of(configured)) as channel:
                stub = LocalStub(rpc.ClientServiceStub(channel), address)
                spec = app_for_every_type("all", jobs=4, iterations=300)
                app_id = (await stub.Submit(pb.SubmitRequest(spec=app_to_message(spec)))).app_id
                while not (await stub.Show(pb.ShowRequest(app_id=app_id))).progress:
                    await asyncio.sleep(0.1)
        finally:
            first.kill()
            first.wait()
        kept = CLUSTER["machines"][:1]
        path.write_text(yaml.safe_dump({**CLUSTER, "machines": [*kept, {**V100_MACHINE, "slots": [2]}]}))
        async with live(configured) as rm:
            await started_on(rm, app_id, "v00")
            status = await rm.ended(app_id)
            assert (status.state, status.attempts) == ("FINISHED", 1), status.diagnostics

    asyncio.run(scenario())


def test_app_that_states_wrong_speeds_reports_measured_ones_and_oef_uses_them(tmp_path: Path) -> None:
    """It states that a V100 is 20 times as fast as a K80; it is twice as fast. Both its jobs get the right speed.

    They keep it when the app master dies.
    """
    path = cluster_file(tmp_path)
    path.write_text(yaml.safe_dump({**CLUSTER, "machines": [*CLUSTER["machines"][:1], V100_MACHINE]}))
    configured = settings(tmp_path, cluster=path, policy="oef", profiling_runs=True)
    spec = replay_app("boaster", iterations=100_000, jobs=2)
    arguments = {"model": "resnet50", "serial_iteration_s": 0.3, "speeds": "k80=0.5,v100=1"}
    jobs = tuple(replace(job, speed_by_device={"k80": 0.5, "v100": 10.0}) for job in spec.jobs)
    boaster = replace(spec, jobs=jobs, program=replace(spec.program, arguments=arguments))

    def measured(status) -> bool:
        speeds = [{each.device: each.speed for each in job.speeds} for job in status.jobs]
        ratios = [each["v100"] / each["k80"] for each in speeds if each]
        lines = {line.label: line.text for line in status.explanation}
        # The last attempt noted a pace before its last intervals, so the next one may know 1.9 for 2.
        speedup = re.match(r"k80 1, v100 ([\d.]+)", lines.get("Speedups", ""))
        return len(ratios) == 2 and max(*ratios, float(speedup[1]) if speedup else 20.0) < 2.5

    async def scenario() -> None:
        async with live(configured) as rm:
            app_id = await rm.submit(boaster)
            status = await rm.wait(app_id, measured, timeout_s=100)
            # The first type that a job ran on keeps its stated speed, the other one is compared with it.
            assert len([each for job in status.jobs for each in job.speeds if each.measured]) >= 1
            # The next attempt of its app master knows them before its jobs have run again.
            registered = await rm.event("am_registered", app_id)
            kill(int(registered.detail["pid"]))
            again = await rm.event("am_registered", app_id, after=registered.sequence)
            await rm.event("first_step", app_id, after=again.sequence)
            assert measured(await rm.show(app_id))

    asyncio.run(scenario())


def test_app_whose_fast_type_disappears_goes_on_when_it_is_back(tmp_path: Path) -> None:
    path = cluster_file(tmp_path)
    configured = settings(tmp_path, cluster=path, policy="oef")
    engine = ChangingEngine(path)
    engine.machines = FixedInventory(engine._cluster, [Node(machine=V100)])
    only = replay_app("only", iterations=300)
    fast = tuple(replace(job, speed_by_device={"k80": 1e-9, "v100": 2.0}) for job in only.jobs)

    async def scenario() -> None:
        async with live(configured, engine) as rm:
            app_id = await rm.submit(replace(only, jobs=fast))
            await started_on(rm, app_id, "v00")
            await rm.event("checkpoint", app_id)
            engine.see(V100, NodeState.LOST)
            await rm.event("machine_lost", "")
            await rm.wait(app_id, lambda status: status.jobs[0].gpus == 0)
            engine.see(V100, NodeState.USABLE)
            status = await rm.ended(app_id)
            assert (status.state, status.attempts, status.jobs[0].iteration) == ("FINISHED", 1, 300)

    asyncio.run(scenario())


def test_allox_cuts_a_sample_at_five_times_the_median_of_its_type(tmp_path: Path) -> None:
    """Three apps pass 2 % of their job in half a second. A fourth states their speed, and is 40 times as slow."""
    path = cluster_file(tmp_path)
    machines = [{**each, "slots": [6]} for each in (CLUSTER["machines"][0], V100_MACHINE)]
    path.write_text(yaml.safe_dump({**CLUSTER, "machines": machines}))
    lease = LeaseSettings(duration_s=60, checkpoint_lead_s=1, grace_s=15, ends=LeaseEnds.STAGGERED)
    configured = settings(tmp_path, cluster=path, policy="allox", profiling_runs=True, lease=lease)

    def app(name: str, *, serial_iteration_s: float) -> AppSpec:
        spec = replay_app(name, iterations=500)
        arguments = {"model": "resnet50", "serial_iteration_s": serial_iteration_s, "log_every": 1}
        program = replace(spec.program, arguments=arguments)
        return replace(spec, program=program, estimate=Estimate(serial_iteration_s=0.75))

    def lines(status) -> dict[str, str]:
        return {line.label: line.text for line in status.explanation}

    async def scenario() -> None:
        async with live(configured) as rm:
            fast = [await rm.submit(app(f"fast-{number}", serial_iteration_s=0.75)) for number in range(3)]
            for app_id in fast:
                await rm.wait(app_id, lambda status: "Memory of its sample" in lines(status))
            slow = await rm.submit(app("slow", serial_iteration_s=30.0))
            granted = await rm.event("lease_granted", slow)
            # Five times a sample, which counts as 1 s at least, and the time of a start: not the whole lease.
            assert 5.0 < granted.detail["expires_at_s"] - granted.time_s < 59.0
            status = await rm.wait(slow, lambda status: "at least" in lines(status).get("Time by type", ""))
            least_s = float(lines(status)["Time by type"].split("at least ")[1].split()[0])
            assert least_s > 200.0
            # The sample on the other type was not cut.
            assert lines(status)["Memory of its sample"].startswith("v100")
            assert "job-00 on v00" in lines(status)["Runs"]

    asyncio.run(scenario())


def test_job_that_states_a_slow_type_to_be_fast_runs_on_the_fast_one_once_its_app_was_sampled(tmp_path: Path) -> None:
    """It states that a K80 is three times as fast as a V100; it has a fifth of its speed. Leases are short."""
    path = cluster_file(tmp_path)
    path.write_text(yaml.safe_dump({**CLUSTER, "machines": [CLUSTER["machines"][0], V100_MACHINE]}))
    lease = LeaseSettings(duration_s=12, checkpoint_lead_s=1, grace_s=15)
    configured = settings(tmp_path, cluster=path, policy="allox", profiling_runs=True, lease=lease)
    spec = replay_app("boaster", iterations=2000, jobs=2)
    arguments = {"model": "resnet50", "serial_iteration_s": 0.75, "speeds": "k80=0.2,v100=1", "log_every": 1}
    jobs = tuple(replace(job, speed_by_device={"k80": 3.0, "v100": 1.0}) for job in spec.jobs)
    boaster = replace(spec, jobs=jobs, program=replace(spec.program, arguments=arguments))

    async def scenario() -> None:
        async with live(configured) as rm:
            app_id = await rm.submit(boaster)
            status = await rm.wait(app_id, lambda status: any(line.label == "Runs" for line in status.explanation), 90)
            lines = {line.label: line.text for line in status.explanation}
            assert lines["Time by type"].endswith("best on v100")
            assert "on v00" in lines["Runs"]
            assert "on k00" not in lines["Runs"]

    asyncio.run(scenario())
