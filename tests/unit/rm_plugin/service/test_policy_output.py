"""What users and operators read of AlloX and OEF while a ResourceManager runs: `app show`, REST, and metrics."""

import asyncio

import pytest
from msgspec.structs import replace
from service_cases import ServiceCase, registration
from web_cases import served

from rm_plugin.service.status import app_status
from rm_plugin.service.store_memory import MemoryStore
from submarine_client.show import app_text
from themis.apps import AppSpec, JobSpec, ProgramSpec, TaskResources, TunerSpec
from themis.bids import AppReport, GangDemand
from themis.cluster import Cluster, DeviceKind, DeviceType, Machine
from themis.speeds import Speeds
from themis.wire import themis_pb2 as pb
from themis.wire.app_document import app_document
from themis.wire.values import report_to_message

HYBRID = Cluster(
    name="hybrid",
    machines=(
        Machine(machine_id="c", rack_id="r", slots=(1,), device="cpu", cpus=4, memory_mb=4096),
        Machine(machine_id="g", rack_id="r", slots=(1,), device="gpu", cpus=4, memory_mb=4096),
    ),
    devices={
        "cpu": DeviceType(name="cpu", kind=DeviceKind.CPU),
        "gpu": DeviceType(name="gpu", emulated=True),
    },
)


def app(user, speeds=(0.2, 1.0), **more):
    cpu, gpu = speeds
    job = JobSpec(job_id="job", iterations_total=100, speed_by_device={"cpu": cpu, "gpu": gpu})
    return AppSpec(
        name=f"{user}s",
        user=user,
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(name="digits"),
        jobs=(job,),
        **more,
    )


def played(policy, specs, see, cluster=HYBRID, **settings):
    """Play a round in which every app wants one device, and see what `see(case, site, entries)` returns."""

    async def scenario():
        case = ServiceCase(MemoryStore(), policy=policy, cluster=cluster, report_deadline_s=5.0, **settings)
        case.recorder.record("rm_started", detail={"policy": policy})
        sessions = [
            await case.manager.sessions.register(registration(await case.manager.submit(spec))) for spec in specs
        ]

        def reports(round_id, body):
            for entry, session in sessions if body == "rho" else ():
                demand = GangDemand(
                    job_id="job",
                    min_gpus=1,
                    max_gpus=1,
                    work_left_gpu_s=100.0,
                    speeds=Speeds.of(entry.spec.jobs[0].speed_by_device.items()),
                )
                own = AppReport(
                    app_id=entry.app_id, round_id=round_id, rho=2.0, t_shared_s=2.0, t_ideal_s=1.0, demands=(demand,)
                )
                yield entry, session, pb.AmMessage(rho=report_to_message(own))

        await case.round(reports)
        async with served(case, policy=policy) as site:
            return await see(case, site, [entry for entry, _ in sessions])

    return asyncio.run(asyncio.wait_for(scenario(), 20))


async def metrics(_case, site, _entries):
    text = await site.text("/metrics")
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        if name.startswith(("themis_policy_", "themis_devices", "themis_decide"))
    }


def test_show_explains_a_running_and_a_waiting_app_under_allox():
    async def see(case, _site, entries):
        return [app_text(app_status(case.manager, entry, whole=True)) for entry in entries]

    runs, waits = played("allox", [app("ann"), app("bob")], see, alpha=1.0)
    assert "Tenant:         user ann" in runs
    assert "Progress:       1, number 2 of 2 tenants: the least goes first" in runs
    assert "Time by type:   cpu 500 s, gpu 100 s; best on gpu" in runs
    assert "Runs:           job on g, 100 s from its start" in runs
    assert "Progress:       0, number 1 of 2 tenants: the least goes first" in waits
    assert "job waits for g; user bob is number 2 of 2 users by progress; expected to start there in 100 s" in waits


def waits_after_a_restart(seconds, policy="allox"):
    """What the waiting app of two waits for, after a restart so many seconds later and before its first round."""

    async def see(case, _site, entries):
        now_s = case.clock.now_s() + seconds
        again = ServiceCase(case.recorder.store, policy=policy, cluster=HYBRID, now_s=now_s, alpha=1.0)
        return app_status(again.manager, again.entries.get(entries[1].app_id), whole=False).waits_for

    return played("allox", [app("ann"), app("bob")], see, alpha=1.0)


@pytest.mark.parametrize(("seconds", "when"), [(40.0, "in 60 s"), (500.0, "now")])
def test_a_restart_keeps_why_an_app_waits_and_its_time_runs_on(seconds, when):
    text = waits_after_a_restart(seconds)
    assert text.startswith("app-0002/job waits for g; ")
    assert text.endswith(f"; expected to start there {when}")


def test_a_restart_under_another_policy_forgets_why_an_app_waits():
    assert waits_after_a_restart(0.0, policy="themis") == ""


def test_json_and_rest_have_the_explanation_of_allox():
    async def see(case, site, entries):
        shown = app_document(app_status(case.manager, entries[0], whole=True))["explanation"]
        return shown, (await site.json(f"/api/v1/apps/{entries[0].app_id}"))["explanation"]

    shown, rest = played("allox", [app("ann")], see)
    assert {line["label"]: line["text"] for line in shown}["Runs"] == "job on g, 100 s from its start"
    assert rest == shown


def test_progress_counts_the_memory_that_an_app_requests():
    """There are two GPUs, and 12 GB of memory: a job with 9 GB has three quarters of that."""
    second = replace(HYBRID.machines[1], machine_id="h")
    cluster = replace(HYBRID, machines=(*HYBRID.machines, second))
    hungry = app("ann", resources=TaskResources(memory_mb=9 * 1024))
    assert played("allox", [app("ann")], metrics, cluster=cluster)["themis_policy_progress_max"] == 1 / 2
    assert played("allox", [hungry], metrics, cluster=cluster)["themis_policy_progress_max"] == 3 / 4


@pytest.mark.parametrize("policy", ["allox", "sjf_plus"])
def test_metrics_count_what_a_policy_of_alloxs_kind_remembers(policy):
    specs = [app("ann"), app("bob"), app("cid", speeds=(1.0, 0.9))]
    found = played(policy, specs, metrics, alpha=1.0)
    # ann has the GPU, cid the CPU node.
    assert found['themis_devices{type="gpu",state="leased"}'] == 1
    assert found['themis_devices{type="cpu",state="free"}'] == 0
    assert found["themis_policy_progress_max"] == 1.0
    assert found["themis_policy_progress_stddev"] == pytest.approx(2**0.5 / 3)
    assert found["themis_policy_idle_by_choice_total"] == 0
    assert found['themis_policy_sampling_apps{state="running"}'] == 0
    assert found["themis_decide_seconds_count"] == 1
    if policy == "allox":
        assert found['themis_policy_waiting_jobs{type="gpu"}'] == 1
        assert found["themis_policy_matching_jobs"] == 3
        assert found["themis_policy_matching_machines"] == 2
        assert found["themis_policy_matching_proved"] == 1
        assert found['themis_policy_matching_positions{kind="used"}'] == 2
        assert found['themis_policy_users{kind="considered"}'] == 3
        assert found["themis_policy_matchings_total"] == 1
    else:
        assert found['themis_policy_waiting_jobs{type="none"}'] == 1
        assert "themis_policy_matching_jobs" not in found


def test_metrics_count_devices_that_allox_leaves_idle_for_a_faster_one():
    found = played("allox", [app("ann"), app("bob")], metrics, alpha=1.0)
    assert found["themis_policy_idle_by_choice_total"] == 1
    assert found['themis_policy_waiting_jobs{type="gpu"}'] == 1


def test_metrics_count_sampling_runs():
    found = played("allox", [app("ann"), app("bob")], metrics, profiling_runs=True)
    assert found['themis_policy_sampling_apps{state="running"}'] == 1
    assert found['themis_policy_sampling_apps{state="waiting"}'] == 1
    # As long as the two samples of this job need.
    assert found['themis_policy_sampling_runs_total{lease="short"}'] == 1
    assert found['themis_policy_sampling_runs_total{lease="whole"}'] == 0


def test_metrics_have_efficiency_envy_and_deviations_of_oef():
    """ann is 5 times as fast on the GPU, bob 2 times: ann has the GPU, and bob the CPU node with a part of the GPU."""
    found = played("oef", [app("ann"), app("bob", speeds=(0.5, 1.0))], metrics)
    assert found["themis_policy_tenants"] == 2
    assert found['themis_policy_efficiency{kind="fair"}'] == pytest.approx(5.25)
    assert found['themis_policy_efficiency{kind="granted"}'] == pytest.approx(6.0)
    assert found["themis_policy_sharing_incentive_min"] == pytest.approx(1.0)
    assert found["themis_policy_envy_max"] == pytest.approx(0.0, abs=1e-6)
    assert found["themis_policy_shares_optimal"] == 1
    assert found["themis_policy_starved_apps"] == 0
    assert found['themis_policy_gangs{machines="one"}'] == 2
    assert found["themis_policy_programmes_total"] == 1


def test_metrics_have_deviations_and_starved_apps_of_oef():
    """Of three equal tenants one gets nothing of its third of each type, which is worth (1 + 0.2) / 3 GPUs to it."""
    found = played("oef", [app(user) for user in ("ann", "bob", "cid")], metrics)
    assert found['themis_policy_deviation_devices_max{type="gpu",kind="owed"}'] == pytest.approx(0.4)
    assert found['themis_policy_deviation_devices_max{type="gpu",kind="ahead"}'] > 0.0
    assert found["themis_policy_starved_apps"] == 1
    assert found["themis_policy_starved_rounds_max"] == 1


def test_policy_without_figures_adds_no_metric():
    assert not [name for name in played("srtf", [app("ann")], metrics) if name.startswith("themis_policy_")]
