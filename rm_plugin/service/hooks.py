"""Web hooks: a POST to each address of the settings when an app has ended.

What is to be sent is written together with the end of the app, and removed once it was delivered or given up. So no end
is lost over a restart, and an end may be delivered twice: receivers go by the app's id.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from urllib.parse import urlsplit

import msgspec

from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.entries import AppEntry
from themis.errors import InputError, ThemisError
from themis.values import Value
from themis.web.formatting import finite

LOG = logging.getLogger("themis.rm.hooks")

HOOKS = "hooks"
"""The key of what is to be sent in the store."""
MAX_PENDING = 1_000
"""With more ends that were not delivered, the oldest ones are given up."""
AT_ONCE = 4
TIMEOUT_S = 10.0
RETRY_AFTER_S = (1.0, 10.0, 60.0, 600.0)
"""Pauses between the tries. After one more try an end is given up."""


class Delivery(Value, frozen=True):
    """The end of an app that one address is to hear of."""

    app_id: str
    url: str


Post = Callable[[str, bytes], Awaitable[None]]
"""Sends a document to an address. Raises ThemisError if it was not accepted."""


class Hooks:
    """Delivers the ends of apps. Belongs to the ResourceManager's loop.

    Args:
        urls: The addresses.
        changes: Writes what is to be sent.
        find: Returns an app by its id, also an archived one.
        page_url: Returns the address of the page, with a slash at its end; empty without one.
    """

    def __init__(
        self,
        urls: Sequence[str],
        changes: Changes,
        find: Callable[[str], Awaitable[AppEntry]],
        page_url: Callable[[], str],
    ) -> None:
        self._urls = tuple(urls)
        self._changes = changes
        self._find = find
        self._page_url = page_url
        self._post: Post = post_document
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.pending: tuple[Delivery, ...] = ()
        """What is to be sent, the oldest end first."""

    def restore(self, kept: Iterable[Delivery]) -> None:
        """Take what a former ResourceManager had to send; addresses that the settings lack now are dropped."""
        self.pending = tuple(each for each in kept if each.url in self._urls)

    def start(self) -> None:
        """Send what was restored."""
        self._send(self.pending)

    def note_end(self, change: Change, entry: AppEntry) -> None:
        """Write, within the change that ends an app, that its end is to be sent."""
        new = tuple(Delivery(entry.app_id, url) for url in self._urls)
        if not new:
            return
        pending = (*self.pending, *new)
        if len(pending) > MAX_PENDING:
            LOG.warning("the ends of %d apps were not delivered, and are given up", len(pending) - MAX_PENDING)
        self._keep(change, pending[-MAX_PENDING:])
        change.then(lambda: self._send(new))

    async def close(self) -> None:
        """Stop sending; the next start goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- inside ----

    def _keep(self, change: Change, pending: tuple[Delivery, ...]) -> None:
        change.keep(HOOKS, json.dumps(msgspec.to_builtins(pending)))
        change.then(lambda: setattr(self, "pending", pending))

    def _send(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            task = asyncio.get_running_loop().create_task(self._deliver(delivery))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        place = urlsplit(delivery.url).hostname
        for pause_s in (*RETRY_AFTER_S, None):
            try:
                async with self._room:
                    if delivery not in self.pending:
                        # Newer ends took its place.
                        return
                    document = end_document(await self._find(delivery.app_id), self._page_url())
                    await self._post(delivery.url, json.dumps(document, allow_nan=False).encode())
                break
            except ThemisError as error:
                LOG.warning("the end of %s is not delivered to %s: %s", delivery.app_id, place, error)
            if pause_s is None:
                LOG.error("the end of %s is given up for %s", delivery.app_id, place)
                break
            await asyncio.sleep(pause_s)
        await self._changes.make_surely(lambda change: self._remove(change, delivery))

    def _remove(self, change: Change, delivery: Delivery) -> None:
        self._keep(change, tuple(each for each in self.pending if each != delivery))


def end_document(entry: AppEntry, page_url: str) -> dict[str, object]:
    """Return what is sent of an app that has ended."""
    return {
        "event": "app_ended",
        "app_id": entry.app_id,
        "name": entry.spec.name,
        "user": entry.spec.user,
        "queue": entry.spec.queue,
        "state": entry.state.value,
        "diagnostics": entry.diagnostics,
        "submitted_at_s": entry.submitted_at_s,
        "started_at_s": entry.started_at_s,
        "finished_at_s": entry.finished_at_s,
        "gpu_time_s": finite(entry.gpu_time_s),
        "best_job": entry.best_job or None,
        "best_checkpoint": entry.finish.best_checkpoint or None,
        "page_url": f"{page_url}apps/{entry.app_id}" if page_url else None,
    }


async def post_document(url: str, body: bytes) -> None:
    """Send a document as JSON; a redirect is not followed.

    Raises:
        ThemisError: There was no answer in time, or one without a status from 200 to 299.
    """
    # Here and not above: a ResourceManager without hooks needs no client of HTTP.
    import aiohttp

    timeout, headers = aiohttp.ClientTimeout(total=TIMEOUT_S), {"Content-Type": "application/json"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            if not 200 <= answer.status < 300:
                raise InputError("the hook answered", value=answer.status)
    except InputError:
        raise
    except aiohttp.ClientConnectorError as error:
        raise ThemisError("the hook cannot be reached", value=str(error)) from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        # The texts of other errors may hold the address, and with it a secret.
        raise ThemisError("the hook cannot be reached", value=type(error).__name__) from None
