"""Run auctions in a worker process with a deadline, so that the event loop never waits for a solver."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import msgspec

from rm_plugin.arbiter.auction import AuctionOutcome, run_auction
from rm_plugin.service.worker import end_worker, start_worker
from rm_plugin.solvers.registry import solver
from themis.bids import Market

LOG = logging.getLogger("themis.rounds")

_MARGIN_S = 2.0

START_S = 60.0
"""Seconds that a worker may take to start before it is replaced: on a busy machine its imports take long."""


class Auctioneer:
    """One worker process, started at once so that the first auction does not wait for it."""

    def __init__(self, solver_name: str, time_limit_s: float) -> None:
        solver(solver_name)
        self._solver_name = solver_name
        self._time_limit_s = time_limit_s
        self._pool: ProcessPoolExecutor | None = None
        self._ready: Future[int] = Future()
        """Done once the worker has started."""
        self._started_s = 0.0
        self._start()

    async def run(self, market: Market) -> AuctionOutcome | None:
        """Run an auction. Returns None if it has no outcome: the round then continues without winners.

        A worker that died or missed its deadline is replaced. A death while idle costs no outcome. A worker that still
        starts is kept: if each round replaced it, no auction would have an outcome on a machine on which a start takes
        longer than the deadline. A failing solver is a defect of ours, but it must not keep leases from ending.
        """
        try:
            future = self._submit(market)
            async with asyncio.timeout(self._time_limit_s + _MARGIN_S):
                return await future
        except (TimeoutError, BrokenProcessPool) as error:
            if isinstance(error, TimeoutError) and self._is_starting:
                LOG.warning("the auction's worker has not started yet")
                return None
            LOG.warning("the auction's worker died or overran its deadline")
            self._replace()
            return None
        except OSError:
            LOG.exception("the auction's worker cannot be started")
            self.close()
            return None
        except Exception:
            # Any defect of the solver: else the same market would fail every round, and no lease would end any more.
            LOG.exception("the auction failed")
            return None

    def _submit(self, market: Market) -> asyncio.Future[AuctionOutcome]:
        for _ in range(2):
            try:
                if self._pool is None:
                    self._start()
                loop = asyncio.get_running_loop()
                # `pickle` takes 25 times as long for thousands of bids, and holds the interpreter.
                packed = msgspec.msgpack.encode(market)
                return loop.run_in_executor(self._pool, _solve, packed, self._solver_name, self._time_limit_s)
            except BrokenProcessPool:
                LOG.warning("the auction's worker died while it was idle")
                self.close()
        raise BrokenProcessPool("the auction's worker dies as it starts")

    def close(self) -> None:
        """End the worker; another auction starts one."""
        pool, self._pool = self._pool, None
        if pool is not None:
            end_worker(pool)

    def _start(self) -> None:
        self._pool = start_worker()
        self._ready, self._started_s = self._pool.submit(os.getpid), time.monotonic()

    @property
    def _is_starting(self) -> bool:
        return not self._ready.done() and time.monotonic() - self._started_s < START_S

    def _replace(self) -> None:
        self.close()
        try:
            self._start()
        except OSError as error:
            LOG.warning("the auction's worker cannot be started now: %s", error)


def _solve(packed: bytes, solver_name: str, time_limit_s: float) -> AuctionOutcome:
    return run_auction(msgspec.msgpack.decode(packed, type=Market), solver(solver_name), time_limit_s)
