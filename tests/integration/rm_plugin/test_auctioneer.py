"""The auction's worker process: an outcome, a deadline, a death, a defect."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

import psutil
import pytest

from rm_plugin.service import auctioneer
from rm_plugin.service.auctioneer import Auctioneer
from rm_plugin.service.worker import end_worker, start_worker
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.cluster import Level
from themis.errors import UnknownNameError

MARKET = Market(
    machines=(FreeMachine(machine_id="m0", rack_id="r0", free_slots=(2,)),),
    bids=(
        Bid(
            app_id="a",
            round_id=1,
            empty_value=0.5,
            rows=(BidRow(value=1.0, gangs=(GangRequest(2, Level.MACHINE),)),),
        ),
    ),
)


def workers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_an_outcome_comes_from_another_process_and_close_ends_it() -> None:
    async def scenario() -> None:
        worker = Auctioneer("highs", 60.0)
        outcome = await worker.run(MARKET)
        assert outcome is not None
        assert outcome.wins.keys() == {"a"}
        assert workers()
        worker.close()
        for _ in range(1200):
            if not workers():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the worker outlived its owner")

    asyncio.run(scenario())


@pytest.mark.parametrize("lower", [None, 3])
def test_priority_of_a_worker_is_ours_unless_it_is_to_be_lower(lower: int | None) -> None:
    worker = start_worker() if lower is None else start_worker(lower)
    try:
        assert worker.submit(os.nice, 0).result(60) == min(19, os.nice(0) + (lower or 0))
    finally:
        end_worker(worker)


@pytest.mark.parametrize("noticed", [False, True])
@pytest.mark.parametrize("used", [False, True])
def test_a_worker_that_dies_while_idle_costs_at_most_one_outcome(used: bool, noticed: bool) -> None:
    """The pool learns of a death a moment later. From then on it takes no more work, and another one is started."""

    async def scenario() -> None:
        worker = Auctioneer("highs", 60.0)
        try:
            if used:
                assert await worker.run(MARKET) is not None
            while not workers():
                await asyncio.sleep(0.01)
            os.kill(workers()[0].pid, signal.SIGKILL)
            async with asyncio.timeout(60):
                while noticed and not worker._pool._broken:
                    await asyncio.sleep(0.01)
            answers = [await worker.run(MARKET) for _ in range(2)]
            assert answers[1] is not None
            if noticed:
                assert answers[0] is not None
        finally:
            worker.close()

    asyncio.run(scenario())


def test_a_worker_that_dies_as_it_solves_costs_one_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        worker = Auctioneer("highs", 60.0)
        try:
            assert await worker.run(MARKET) is not None
            (process,) = workers()
            process.suspend()
            solving = asyncio.ensure_future(worker.run(MARKET))
            await asyncio.sleep(0.2)
            process.kill()
            assert await solving is None
            assert await worker.run(MARKET) is not None
        finally:
            worker.close()

    asyncio.run(scenario())


def test_a_worker_that_cannot_be_started_costs_outcomes_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory() -> None:
        raise OSError("cannot allocate memory")

    async def scenario() -> None:
        worker = Auctioneer("highs", 60.0)
        try:
            worker.close()
            with monkeypatch.context() as starved:
                starved.setattr(auctioneer, "start_worker", no_memory)
                assert await worker.run(MARKET) is None
            assert await worker.run(MARKET) is not None
        finally:
            worker.close()

    asyncio.run(scenario())


def test_a_solver_past_its_deadline_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        worker = Auctioneer("highs", 60.0)
        try:
            assert await worker.run(MARKET) is not None
            (process,) = workers()
            # On a busy machine the answer may come before this process sees the end of the shortest deadline.
            process.suspend()
            monkeypatch.setattr(auctioneer, "_MARGIN_S", -59.9999)
            assert await worker.run(MARKET) is None
            process.wait(60)
        finally:
            worker.close()

    asyncio.run(scenario())


def test_a_worker_that_still_starts_at_the_deadline_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a start takes longer than the deadline. If each round replaced it, none would ever be ready."""

    async def scenario() -> None:
        monkeypatch.setattr(auctioneer, "_MARGIN_S", -59.9999)
        worker = Auctioneer("highs", 60.0)
        try:
            pool = worker._pool
            assert [await worker.run(MARKET) for _ in range(3)] == [None] * 3
            monkeypatch.setattr(auctioneer, "_MARGIN_S", 0.0)
            assert await worker.run(MARKET) is not None
            assert worker._pool is pool
        finally:
            worker.close()

    asyncio.run(scenario())


def test_a_solver_that_refuses_a_market_costs_no_round() -> None:
    async def scenario() -> None:
        worker = Auctioneer("highs", 60.0)
        try:
            bid = Bid(app_id="a", round_id=1, empty_value=0.0, rows=MARKET.bids[0].rows)
            assert await worker.run(Market(machines=MARKET.machines, bids=(bid,))) is None
        finally:
            worker.close()

    asyncio.run(scenario())


def fails(*_arguments: object) -> None:
    raise ZeroDivisionError("a defect of the solver")


def test_a_defect_in_the_solver_costs_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        worker = Auctioneer("highs", 60.0)
        try:
            with monkeypatch.context() as patched:
                patched.setattr(auctioneer, "_solve", fails)
                assert await worker.run(MARKET) is None
            assert await worker.run(MARKET) is not None
        finally:
            worker.close()

    asyncio.run(scenario())


def test_an_unknown_solver_is_refused_at_start() -> None:
    with pytest.raises(UnknownNameError, match="highs"):
        Auctioneer("higs", 1.0)
