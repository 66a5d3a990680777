"""Estimates, reasons for waiting and rho of live apps."""

import asyncio
import math
import re
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from living import is_alive
from msgspec.structs import replace
from web_cases import RmCase

from rm_plugin.arbiter.round_values import Wait
from rm_plugin.policies.due_dates import DueDateMemory, MeteredApp
from rm_plugin.service import app_estimates
from rm_plugin.service.status import app_status
from rm_plugin.service.worker import start_worker
from submarine_client.show import app_text, progress_line
from themis.fluid_cluster import FluidState
from themis.lifecycle import AppState
from themis.queues import ROOT, Queue, Queues, QueueUser
from themis.wire import themis_pb2 as pb
from themis.wire.app_document import app_document


def run(check, *racks):
    async def scenario():
        check(RmCase(*(racks or (((4,),),))))

    asyncio.run(scenario())


def test_rho_is_the_estimated_time_over_that_on_the_fluid_cluster():
    def check(case):
        entry = case.running("a", progress=0.5)
        case.grant(app_0001={"m00": 4})
        case.clock.advance_to(case.clock.now_s() + 100.0)
        estimate = case.manager.estimates.estimate(entry)
        # Alone it takes 1000 s on the fluid cluster.
        assert case.manager.estimates.rho(entry) == pytest.approx((100.0 + estimate.end_s.median) / 1000.0)
        assert estimate.end_s.low <= 500.0 + 1.0 and estimate.end_s.high >= 500.0 - 1.0

    run(check)


def test_app_without_a_heartbeat_has_neither_estimate_nor_rho():
    def check(case):
        entry = case.app("a")
        assert case.manager.estimates.estimate(entry) is None
        assert math.isnan(case.manager.estimates.rho(entry))
        assert case.manager.estimates.waiting(entry).reason == "its app master has not reported yet"

    run(check)


def test_ended_app_has_its_final_rho_and_does_not_wait():
    def check(case):
        entry = case.running("a")
        entry.finish = pb.Finish(state="FINISHED", rho={"themis": 0.5}, declaration=entry.heartbeat.declaration)
        entry.update(state=AppState.FINISHED, finished_at_s=entry.submitted_at_s + 1500.0)
        assert case.manager.estimates.rho(entry) == pytest.approx(1.5)
        assert case.manager.estimates.waiting(entry) is None
        assert case.manager.estimates.estimate(entry) is None

    run(check)


def waiting(case, **changes):
    entry = case.entries.get("app-0002")
    for name, value in changes.items():
        setattr(entry, name, value)
    return case.manager.estimates.waiting(entry)


def test_reason_is_the_first_that_is_the_case():
    def check(case):
        case.running("holder")
        case.running("waits", unmet=4)
        case.grant(app_0001={"m00": 3})
        shape = replace(case.entries.get("app-0002").shapes["job-0"], min_tasks=2)
        assert waiting(case, shapes={"job-0": shape}).reason == "1 GPU free, and its smallest gang needs 2"
        assert (
            waiting(case, wait=Wait(job_id="job-0", reason="profiling comes first")).reason == "profiling comes first"
        )
        assert waiting(case, launch_wait="the queue is full").reason == "the queue is full"

    run(check)


def test_free_gpus_that_an_app_alone_does_not_get_are_not_left_to_others():
    def check(case):
        entry = case.running("alone", unmet=4)
        assert case.manager.estimates.waiting(entry).reason == "4 GPUs free; the next round may place it"
        case.grant(app_0001={"m00": 2})
        assert case.manager.estimates.waiting(entry).reason == (
            "2 GPUs free; more would not pay for a restart, or come with the next round"
        )

    run(check)


def test_app_that_holds_all_it_can_use_does_not_wait_while_its_master_starts():
    def check(case):
        entry = case.running("starts", unmet=4)
        most = entry.spec.demand_max_gpus
        assert case.manager.estimates.waiting(entry) is not None
        case.grant(app_0001={"m00": most})
        assert case.manager.estimates.waiting(entry) is None

    run(check, ((8,), (8,)))


def test_full_cluster_is_the_reason_with_the_end_of_the_next_leases():
    def check(case):
        case.running("holder")
        case.running("waits", unmet=4)
        case.grant(app_0001={"m00": 4})
        found = waiting(case)
        assert found.reason == "no GPU is free: all 4 are leased; the next leases end in 10:00 min"
        assert (found.rank, found.of, found.ahead) == (1, 1, ())

    run(check)


def test_app_that_waits_is_expected_to_start_and_end_after_the_one_that_holds_all():
    def check(case):
        holder = case.running("holder", progress=0.5)
        waits = case.running("waits", unmet=4)
        case.grant(app_0001={"m00": 4})
        of_holder, of_waits = (case.manager.estimates.estimate(entry) for entry in (holder, waits))
        assert of_holder.first_gpu_s.high == 0.0
        assert 0.0 < of_holder.end_s.low <= of_waits.first_gpu_s.median <= of_holder.end_s.high
        assert of_waits.first_gpu_s.median < of_waits.end_s.median <= of_waits.end_s.high

    run(check)


def test_apps_served_before_it_are_ahead():
    def check(case):
        case.running("earlier", unmet=4).submitted_at_s -= 5000.0
        case.running("waits", unmet=4)
        found = waiting(case)
        assert (found.rank, found.of, found.ahead) == (2, 2, ("app-0001",))
        assert found.reason == "4 GPUs free, and fair_finish serves 1 app before it"

    run(check)


@pytest.mark.parametrize(("weight", "rank"), [(1.0, 2), (3.0, 1)])
def test_place_follows_from_the_weights_of_users(weight, rank):
    def check(case):
        entry = case.running("two-parts", user="anna", unmet=4)
        case.running("other-part", user="anna", unmet=4)
        case.running("whole", user="bob", unmet=4, progress=0.3)
        queues = Queues(queues={ROOT: Queue(name=ROOT, users={"anna": QueueUser(weight=weight)})})
        case.arbiter.requeue(queues, now_s=case.clock.now_s())
        assert case.manager.estimates.waiting(entry).rank == rank

    run(check)


def test_status_says_how_much_more_an_app_wants_and_where_its_page_is():
    def check(case):
        entry = case.running("a", unmet=4)
        case.manager.page_url = "http://127.0.0.1:8651/"
        status = app_status(case.manager, entry, whole=True)
        assert (status.gpus_unmet, status.app_page_url) == (4, f"http://127.0.0.1:8651/apps/{entry.app_id}")
        case.manager.page_url = ""
        assert app_status(case.manager, entry, whole=True).app_page_url == ""

    run(check)


def test_app_that_overran_its_declaration_is_expected_to_need_three_times_as_much_again():
    def check(case):
        entry = case.running("liar", unmet=4, progress=0.9)
        case.running("honest", unmet=4)
        metered = MeteredApp(work_gpu_s=100.0, whole_time_s=25.0, done_gpu_s=200_000.0)
        memory = DueDateMemory(fluid=FluidState(gpus=4, now_s=0.0), apps={entry.app_id: metered})
        case.arbiter._memory = memory
        case.arbiter._apps[entry.app_id].attained_gpu_s = 200_000.0
        assert case.manager.estimates.waiting(entry).rank == 2

    run(check)


def in_thread(monkeypatch):
    """Make every forecast as that of many apps, but in a thread."""
    monkeypatch.setattr(app_estimates, "_AT_ONCE_APPS", 0)
    monkeypatch.setattr(app_estimates, "start_worker", lambda niceness: ThreadPoolExecutor(1))
    monkeypatch.setattr(app_estimates, "end_worker", lambda worker: worker.shutdown())


def test_forecast_of_many_apps_is_made_beside_the_loop_and_equals_one_made_at_once(monkeypatch):
    async def scenario(at_once_apps):
        monkeypatch.setattr(app_estimates, "_AT_ONCE_APPS", at_once_apps)
        # On a busy machine a worker of low priority may take minutes to start.
        monkeypatch.setattr(app_estimates, "start_worker", lambda _niceness: start_worker())
        case = RmCase(((4,),))
        entry = case.running("a", progress=0.5)
        case.grant(app_0001={"m00": 4})
        first = case.manager.estimates.estimate(entry)
        async with asyncio.timeout(100):
            while (made := case.manager.estimates.estimate(entry)) is None:
                await asyncio.sleep(0.001)
        rho = case.manager.estimates.rho(entry)
        case.manager.estimates.close()
        return first, (made, rho)

    first, at_once = asyncio.run(scenario(1))
    assert first == at_once[0] and at_once[1] > 0.0
    assert asyncio.run(scenario(0)) == (None, at_once)


def test_forecast_that_fails_is_made_again_later_only(monkeypatch, caplog):
    async def scenario():
        calls = []

        def failing(*arguments, **named):
            calls.append(None)
            raise RuntimeError("a defect")

        in_thread(monkeypatch)
        monkeypatch.setattr(app_estimates, "packed_prospects", failing)
        case = RmCase(((4,),))
        entry = case.running("a")
        estimates = case.manager.estimates
        estimates.rho(entry)
        async with asyncio.timeout(100):
            while estimates._making is not None:
                await asyncio.sleep(0.001)
        assert math.isnan(estimates.rho(entry))
        assert len(calls) == 1
        assert estimates._making is None

    asyncio.run(scenario())
    assert "a forecast of the apps failed" in caplog.text


def test_failed_forecast_leaves_no_estimates_of_the_one_before(monkeypatch):
    async def scenario():
        case = RmCase(((4,),))
        entry = case.running("a")
        estimates = case.manager.estimates
        assert estimates.estimate(entry) is not None

        def failing(*arguments, **named):
            raise RuntimeError("a defect")

        in_thread(monkeypatch)
        monkeypatch.setattr(app_estimates, "packed_prospects", failing)
        case.clock.advance_to(case.clock.now_s() + 1000.0)
        estimates.rho(entry)
        async with asyncio.timeout(100):
            while estimates._making is not None:
                await asyncio.sleep(0.001)
        assert estimates.estimate(entry) is None

    asyncio.run(scenario())


def test_apps_beyond_the_bound_of_a_forecast_have_no_estimate(monkeypatch):
    monkeypatch.setattr(app_estimates, "_MAX_APPS", 1)

    def check(case):
        first, second = case.running("a"), case.running("b")
        assert case.manager.estimates.estimate(first) is not None
        assert case.manager.estimates.estimate(second) is None

    run(check)


def test_largest_rho_is_that_of_an_active_app():
    def check(case):
        first, second = case.running("a"), case.running("b")
        estimates = case.manager.estimates
        assert estimates.max_rho() == max(estimates.rho(first), estimates.rho(second))
        largest, other = sorted((first, second), key=estimates.rho, reverse=True)
        largest.update(state=AppState.KILLED)
        assert estimates.max_rho() == estimates.rho(other)

    run(check)


def spawned(processes):
    """The workers among them, without the process by which Python tracks shared memory."""
    return [each for each in processes if any("spawn_main" in word for word in each.cmdline())]


def test_stop_ends_the_worker_also_as_it_makes_a_forecast(monkeypatch, caplog):
    async def scenario():
        monkeypatch.setattr(app_estimates, "_AT_ONCE_APPS", 0)
        before = set(psutil.Process().children())
        case = RmCase(((4,),))
        case.manager.estimates.rho(case.running("a"))
        async with asyncio.timeout(100):
            # Amid `exec` a process has no arguments.
            while not (started := spawned(set(psutil.Process().children()) - before)):
                await asyncio.sleep(0.001)
        for worker in started:
            worker.suspend()
        case.manager.estimates.close()
        assert len(started) == 1
        # The pool reaps its worker: `psutil.Process.wait` here would take the exit from it.
        async with asyncio.timeout(100):
            while is_alive(started[0].pid):
                await asyncio.sleep(0.01)

    asyncio.run(scenario())
    assert not caplog.records


def test_end_is_unknown_while_the_pace_is_a_guess():
    def check(case):
        entry = case.running("a", progress=0.5)
        case.grant(app_0001={"m00": 4})
        assert math.isfinite(case.manager.estimates.estimate(entry).end_s.median)
        entry.heartbeat.provisional = True
        estimate = case.manager.estimates.estimate(entry)
        assert math.isnan(estimate.end_s.median) and estimate.first_gpu_s.median == 0.0
        status = app_status(case.manager, entry, whole=True)
        assert app_document(status)["estimate"]["end_s"] == {"median": None, "low": None, "high": None}
        said = r"^End: +unknown, because a job has an unknown pace or is past its target$"
        assert re.search(said, app_text(status), flags=re.MULTILINE)
        assert "ends in" not in progress_line(status)

    run(check)
