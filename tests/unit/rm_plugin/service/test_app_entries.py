"""The status of an ended app is the same before and after a restart of the ResourceManager."""

import asyncio
import math
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from web_cases import RmCase

from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.session import Session
from rm_plugin.service.status import app_status
from rm_plugin.service.store_json import from_json, to_json
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb


@pytest.mark.parametrize("last_number", [3, 9])
def test_ids_of_apps_that_are_lost_or_archived_are_not_used_again(last_number):
    entries = AppEntries([], lost=["app-0002", "app-0007"], last_number=last_number)
    assert entries.next_id() == ("app-0010" if last_number == 9 else "app-0008")


@pytest.mark.parametrize("number", [math.inf, math.nan, "1", None, [1.0]])
def test_stored_numbers_that_are_none_count_as_not_stored(number):
    """The GPU time of ended apps is summed exactly, which takes finite numbers only."""
    case = RmCase(((4,),))
    stored = case.running("mine").stored()
    names = ("gpu_time_s", "claimed_gpu_s", "paused_at_s", "paused_s", "waits_since_s", "unadmitted_s", "progress")
    entry = AppEntry.restored(replace(stored, final={**stored.final, **dict.fromkeys(names, number)}))
    assert (entry.gpu_time_s, entry.paused_s, entry.unadmitted_s, entry.heartbeat.progress) == (0.0, 0.0, 0.0, 0.0)
    assert (entry.claimed_gpu_s, entry.paused_at_s, entry.waits_since_s) == (None, None, None)


JOBS = [pb.JobStatus(job_id="job-0", state="FINISHED", iteration=500, loss=0.1, has_loss=True)]


def after_a_restart(case: RmCase, entry: AppEntry) -> AppEntry:
    """Return the app as the next ResourceManager reads it from the store."""
    (stored,) = [app for app in case.recorder.store.apps() if app.app_id == entry.app_id]
    assert from_json(to_json(stored.final)) == stored.final
    return AppEntry.restored(stored)


def shown(case: RmCase, entry: AppEntry) -> str:
    # As text, since NaN equals nothing.
    return str(app_status(case.manager, entry, whole=True))


def ended(tmp_path, how) -> tuple[RmCase, AppEntry]:
    """Run an app that reports progress and ends as `how` says."""

    async def scenario():
        case = RmCase(((4,),), folder=str(tmp_path))
        case.manager.rounds = SimpleNamespace(
            trigger=lambda why: None, lease_ends_moved=lambda: None, demand_changed=lambda: None
        )
        entry = case.running("mine", progress=0.4)
        entry.page_url, entry.engine_id = "http://node:1/", "application_1_0001"
        await how(case.manager, entry)
        await case.manager.app_masters.close()
        return case, entry

    return asyncio.run(scenario())


async def tell(manager, entry, **body):
    await manager.sessions.receive(entry, Session(entry.app_id, 1), pb.AmMessage(id=9, **body))


async def killed_by_force(manager, entry):
    await manager.app_masters.lifecycle.end_surely(entry, AppState.KILLED, "no longer wanted")


async def lost(manager, entry):
    await manager.app_masters.lifecycle.end_surely(entry, AppState.FAILED, "its app master was lost 2 times")


async def killed_in_order(manager, entry):
    entry.kill_reason = "no longer wanted"
    await tell(manager, entry, finish=pb.Finish(state="KILLED", rho={"themis": 1.75}, jobs=JOBS, best="job-0"))


async def finished(manager, entry):
    await tell(manager, entry, finish=pb.Finish(state="FINISHED", rho={"themis": 1.25}, jobs=JOBS, best="job-0"))


@pytest.mark.parametrize("how", [killed_by_force, lost, killed_in_order, finished])
def test_ended_app_is_same_after_restart(tmp_path, how):
    case, entry = ended(tmp_path, how)
    again = after_a_restart(case, entry)
    assert shown(case, again) == shown(case, entry)
    assert [job.job_id for job in again.jobs] == [job.job_id for job in entry.jobs] != []
    assert (again.heartbeat.phases, again.engine_id) == (3, "application_1_0001")


@pytest.mark.parametrize("how", [killed_by_force, lost])
def test_forecast_is_no_final_rho_without_final_report(tmp_path, how):
    case, entry = ended(tmp_path, how)
    status = app_status(case.manager, entry, whole=False)
    assert math.isnan(status.rho)
    assert status.progress == 0.4


async def finished_short_of_its_target(manager, entry):
    jobs = [pb.JobStatus(job_id="job-0", state="FINISHED", iteration=10, target_iteration=1000)]
    await tell(manager, entry, finish=pb.Finish(state="FINISHED", jobs=jobs))


def test_progress_of_finished_app_is_whole_unless_a_job_ended_short_of_its_target(tmp_path):
    for how, share in ((finished, 1.0), (finished_short_of_its_target, math.nan)):
        case, entry = ended(tmp_path / how.__name__, how)
        for each in (entry, after_a_restart(case, entry)):
            assert app_status(case.manager, each, whole=False).progress == pytest.approx(share, nan_ok=True)


@pytest.mark.parametrize("how", [killed_by_force, lost])
def test_jobs_of_killed_app_are_not_running(tmp_path, how):
    case, entry = ended(tmp_path, how)
    reported = [(job.state, job.gpus) for job in entry.heartbeat.jobs]
    assert ("RUNNING", 2) in reported
    assert [(job.state, job.gpus) for job in app_status(case.manager, entry, whole=False).jobs] == [
        ("KILLED", 0) for _ in reported
    ]


async def refused_in_a_later_attempt(manager, entry):
    await tell(manager, entry, finish=pb.Finish(state="FAILED", diagnostics="its program is gone"))


def test_jobs_missing_in_final_report_come_from_heartbeat(tmp_path):
    case, entry = ended(tmp_path, refused_in_a_later_attempt)
    assert [job.state for job in entry.jobs] == ["KILLED"] * len(entry.heartbeat.jobs) != []
    assert shown(case, after_a_restart(case, entry)) == shown(case, entry)


def test_jobs_that_ended_before_keep_their_state(tmp_path):
    async def how(manager, entry):
        entry.heartbeat.jobs[0].state = "STOPPED"
        await killed_by_force(manager, entry)

    _, entry = ended(tmp_path, how)
    assert [job.state for job in entry.jobs][:2] == ["STOPPED", "KILLED"]


@pytest.mark.parametrize(("how", "rho", "progress"), [(killed_in_order, 1.75, 0.4), (finished, 1.25, 1.0)])
def test_final_rho_is_of_final_report(tmp_path, how, rho, progress):
    case, entry = ended(tmp_path, how)
    status = app_status(case.manager, entry, whole=False)
    assert (status.final_rho["themis"], status.progress) == (rho, progress)


def test_heartbeat_after_end_changes_nothing(tmp_path):
    async def how(manager, entry):
        await killed_by_force(manager, entry)
        await tell(manager, entry, heartbeat=pb.Heartbeat(progress=0.9))

    case, entry = ended(tmp_path, how)
    assert entry.progress == 0.4
    assert shown(case, after_a_restart(case, entry)) == shown(case, entry)


async def started(manager, entry):
    manager.recorder.record("am_started", app=entry)


def test_running_app_has_its_progress_but_no_jobs_after_restart(tmp_path):
    case, entry = ended(tmp_path, started)
    again = after_a_restart(case, entry)
    assert (again.page_url, again.progress, list(again.jobs)) == ("", 0.4, [])


def test_place_of_the_checkpoints_outlasts_the_app_and_a_restart(tmp_path):
    async def reported_then_lost(manager, entry):
        entry.heartbeat = pb.Heartbeat(progress=0.5, checkpoint_uri="hdfs://nn/c")
        await lost(manager, entry)

    case, entry = ended(tmp_path, reported_then_lost)
    again = after_a_restart(case, entry)
    assert app_status(case.manager, again, whole=True).checkpoint_uri == "hdfs://nn/c"


CURVE = pb.LossCurve(job_id="job-0", iterations=[1, 2], losses=[0.5, 0.25])


@pytest.mark.parametrize("finish", [pb.Finish(), pb.Finish(state="FINISHED", loss_curves=[CURVE])])
def test_loss_curves_outlast_the_app_and_a_restart(tmp_path, finish):
    async def reported_then_lost(manager, entry):
        entry.take_heartbeat(pb.Heartbeat(loss_curves=[CURVE]))
        entry.take_heartbeat(pb.Heartbeat(progress=0.5))
        entry.finish = finish
        await lost(manager, entry)

    case, entry = ended(tmp_path, reported_then_lost)
    assert list(after_a_restart(case, entry).loss_curves) == [CURVE]
