"""One app master's session, as the ResourceManager sees it: what goes out, and answers that are waited for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from themis.bids import AppReport, Bid
from themis.wire import themis_pb2 as pb

_OUTGOING_MOST = 1_000


class Session:
    """Belongs to one attempt of one app, until the stream breaks or a newer session takes its place."""

    def __init__(self, app_id: str, attempt: int) -> None:
        self.app_id = app_id
        self.attempt = attempt
        self._outgoing: asyncio.Queue[pb.RmMessage | None] = asyncio.Queue(_OUTGOING_MOST)
        self.bid_prepare_ms = 0.0
        self.closed = False
        self._next_id = 1
        self._reports: dict[int, asyncio.Future[AppReport]] = {}
        self._bids: dict[int, asyncio.Future[Bid]] = {}

    def send(self, message: pb.RmMessage) -> None:
        """Queue a message; a peer that reads nothing for a thousand messages is cut off."""
        message.id = self._next_id
        self._next_id += 1
        try:
            self._outgoing.put_nowait(message)
        except asyncio.QueueFull:
            self.close()

    def close(self) -> None:
        """End the stream after what is queued; answers that are still waited for will not come."""
        self.closed = True
        for round_id in {*self._reports, *self._bids}:
            self.forget(round_id)
        # A full queue is that of a peer that reads nothing: what it misses does not matter.
        with contextlib.suppress(asyncio.QueueEmpty):
            if self._outgoing.full():
                self._outgoing.get_nowait()
        self._outgoing.put_nowait(None)

    async def outgoing(self) -> AsyncIterator[pb.RmMessage]:
        """Messages to write, until the session is closed."""
        while (message := await self._outgoing.get()) is not None:
            yield message

    # ---- answers ----

    def expect_report(self, round_id: int) -> asyncio.Future[AppReport]:
        """A future for the app's report of a round."""
        return self._reports.setdefault(round_id, asyncio.get_running_loop().create_future())

    def expect_bid(self, round_id: int) -> asyncio.Future[Bid]:
        """A future for the app's bid in a round."""
        return self._bids.setdefault(round_id, asyncio.get_running_loop().create_future())

    def take_report(self, report: AppReport) -> None:
        """A report came; one that nobody waits for any more is late and dropped."""
        future = self._reports.pop(report.round_id, None)
        if future is not None and not future.done():
            future.set_result(report)

    def take_bid(self, bid: Bid) -> None:
        """A bid came; one that nobody waits for any more is late and dropped."""
        future = self._bids.pop(bid.round_id, None)
        if future is not None and not future.done():
            future.set_result(bid)

    def forget(self, round_id: int) -> None:
        """Answers to this round are late from now on."""
        report, bid = self._reports.pop(round_id, None), self._bids.pop(round_id, None)
        if report is not None:
            report.cancel()
        if bid is not None:
            bid.cancel()
