"""The app master carries an exchange of GPUs out: jobs stop, and each starts again once its new GPUs are free."""

import asyncio
from types import SimpleNamespace

from agent_cases import cluster_of

from am.context import AmContext
from am.master import AppMaster
from am.runtimes.memory import MemoryRuntime
from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.clock import VirtualClock
from themis.cluster import GpuId
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, cluster_to_message

ACROSS = {"j0": (GpuId("m0", 0), GpuId("m1", 0)), "j1": (GpuId("m0", 1), GpuId("m1", 1))}
TUNER = TunerSpec(name="successive_halving", settings={"phases": "2x1000000"})
WITHIN = {"j0": (GpuId("m0", 0), GpuId("m0", 1)), "j1": (GpuId("m1", 0), GpuId("m1", 1))}


async def until(condition):
    async with asyncio.timeout(60.0):
        while not condition():
            await asyncio.sleep(0.001)


async def scenario(folder):
    # j1 ends only when it is killed, after its time to save: j0 has to wait for it.
    runtime = MemoryRuntime(stubborn=frozenset({"j1"}))
    context = AmContext(rm_address="", app_id="app-1", attempt=1, token="t", folder=folder)
    engine = SimpleNamespace(runtime=runtime, attempt=1, headroom_gpus=4)
    master = AppMaster(context, engine, VirtualClock(50.0))
    jobs = tuple(JobSpec(job_id=name, iterations_total=10**6, shape=JobShape(tasks=2, min_tasks=2)) for name in ACROSS)
    spec = AppSpec(
        name="x",
        tuner=TUNER,
        program=ProgramSpec(name="", command="train"),
        jobs=jobs,
        estimate=Estimate(serial_iteration_s=0.1),
    )
    registered = pb.Registered(
        app_id="app-1", spec=app_to_message(spec), cluster=cluster_to_message(cluster_of((2,), (2,))), now_s=1000.0,
        lease_s=600.0, grace_s=1.0, active_apps=1, contention=1.0, bundle_rule="continuation",
    )  # fmt: skip
    await master._open(registered)
    app = master._app
    leases = [
        pb.Lease(lease_id=place, machine_id=gpu.machine_id, gpu_index=gpu.index, state="GRANTED", expires_at_s=2000.0)
        for place, gpu in enumerate((gpu for gang in ACROSS.values() for gpu in gang), 1)
    ]
    app.take_leases(pb.LeaseUpdate(version=1, leases=leases))
    for job_id, gpus in ACROSS.items():
        master._jobs.start(app.search.jobs[job_id], gpus)
    await until(lambda: len(runtime.running) == 4)
    plans = []

    def moved():
        plans.append(master._make_plan(app))
        master._apply(app, plans[-1])
        assert {gang.job_id for gang in app.view(master._planned).held} == set(WITHIN)
        return len(runtime.running) == 4 and {name: app.search.jobs[name].gpus for name in WITHIN} == WITHIN

    await until(moved)
    assert master._make_plan(app).stop == {}
    master._journal.close()
    return plans


def test_two_jobs_exchange_their_gpus(tmp_path):
    plans = asyncio.run(scenario(tmp_path))
    assert [plan.stop for plan in plans if plan.stop] == [{"j0": "it moves", "j1": "it moves"}]
    assert {job_id: gpus for plan in plans for job_id, gpus in plan.start.items()} == WITHIN
