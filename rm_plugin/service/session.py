"""The ResourceManager's side of an app master's session: messages to send, and the answers that rounds wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from themis.bids import AppReport, Bid
from themis.wire import themis_pb2 as pb

_MAX_OUTGOING = 1_000


class Session:
    """The session of one attempt, until the stream breaks or a newer session replaces it."""

    def __init__(self, app_id: str, attempt: int) -> None:
        self.app_id = app_id
        self.attempt = attempt
        self._outgoing: asyncio.Queue[pb.RmMessage | None] = asyncio.Queue(_MAX_OUTGOING)
        self.bid_prepare_ms = 0.0
        self.closed = False
        self.refusal = ""
        """Why the service ended the session, for its app master. Empty if it did not."""
        self._next_id = 1
        self._reports: dict[int, asyncio.Future[AppReport]] = {}
        self._bids: dict[int, asyncio.Future[Bid]] = {}

    def send(self, message: pb.RmMessage) -> None:
        """Queue a message. Closes the session if the peer leaves `_MAX_OUTGOING` messages unread."""
        message.id = self._next_id
        self._next_id += 1
        try:
            self._outgoing.put_nowait(message)
        except asyncio.QueueFull:
            self.close()

    def close(self) -> None:
        """End the stream after the queued messages. Futures of answers that have not arrived are cancelled."""
        self.closed = True
        for round_id in {*self._reports, *self._bids}:
            self.forget(round_id)
        # The peer of a full queue reads nothing, so it may miss a message.
        with contextlib.suppress(asyncio.QueueEmpty):
            if self._outgoing.full():
                self._outgoing.get_nowait()
        self._outgoing.put_nowait(None)

    async def outgoing(self) -> AsyncIterator[pb.RmMessage]:
        """Yield the messages to write, until the session is closed."""
        while (message := await self._outgoing.get()) is not None:
            yield message

    # ---- answers ----

    def expect_report(self, round_id: int) -> asyncio.Future[AppReport]:
        """Return a future for the app's report of a round."""
        return self._reports.setdefault(round_id, asyncio.get_running_loop().create_future())

    def expect_bid(self, round_id: int) -> asyncio.Future[Bid]:
        """Return a future for the app's bid in a round."""
        return self._bids.setdefault(round_id, asyncio.get_running_loop().create_future())

    def take_report(self, report: AppReport) -> None:
        """Hand over a report. It is dropped if its round no longer waits for it."""
        future = self._reports.pop(report.round_id, None)
        if future is not None and not future.done():
            future.set_result(report)

    def take_bid(self, bid: Bid) -> None:
        """Hand over a bid. It is dropped if its round no longer waits for it."""
        future = self._bids.pop(bid.round_id, None)
        if future is not None and not future.done():
            future.set_result(bid)

    def forget(self, round_id: int) -> None:
        """Stop waiting for the answers of a round."""
        report, bid = self._reports.pop(round_id, None), self._bids.pop(round_id, None)
        if report is not None:
            report.cancel()
        if bid is not None:
            bid.cancel()
