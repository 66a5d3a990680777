"""Archive old events, so that the store, the memory and the start of a ResourceManager stay bounded over months.

An ended app keeps its events for `retention.keep_s`, if it is among the `retention.keep_apps` that ended last. Then
they move to an archive file. The app's row stays in the store as its summary: state, times, GPU time, rho, jobs and
best checkpoint are still listed and shown. The memory forgets the app. Events of no app, such as those of rounds, are
archived by age.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from rm_plugin.service.archive import FOLDER, NO_ARCHIVE, write_archive
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.recorder import Recorder, Removed
from rm_plugin.service.store import StateStore, StoredEvent, StoreError
from themis.clock import Clock
from themis.config.rm_settings import RmSettings
from themis.wire import themis_pb2 as pb

LOG = logging.getLogger("themis.rm")

PASS_EVERY_S = 60.0
SETTLED_S = 60.0
"""Seconds after its end in which no app is archived: clients that wait for it read its last events."""
_APPS_A_FILE = 200
_SERVICE_EVENTS_A_FILE = 5_000


class Retention:
    """Archives what is too old or too much, in small parts."""

    def __init__(
        self,
        *,
        settings: RmSettings,
        entries: AppEntries,
        changes: Changes,
        recorder: Recorder,
        clock: Clock,
        final_rho: Callable[[AppEntry], Mapping[str, float]],
    ) -> None:
        self._settings = settings.retention
        self._final_rho = final_rho
        self._folder = settings.state_dir / FOLDER
        self._entries = entries
        self._changes = changes
        self._recorder = recorder
        self._clock = clock

    async def run(self) -> None:
        """Archive once a minute; runs for ever."""
        while True:
            await asyncio.sleep(PASS_EVERY_S)
            try:
                await self.archive_old()
            except (StoreError, OSError) as error:
                # Nothing was removed. The next pass tries again.
                LOG.warning("old events cannot be archived yet: %s", error)
            except Exception:
                LOG.exception("old events cannot be archived")

    async def archive_old(self) -> int:
        """Archive all that is due. Returns the number of apps.

        Raises:
            OSError: The archive cannot be written, or the store (StoreError).
        """
        apps = 0
        while True:
            due = self._due_apps()[:_APPS_A_FILE]
            number = await self._archive_part(due)
            apps += len(due)
            if len(due) < _APPS_A_FILE and number < _SERVICE_EVENTS_A_FILE:
                return apps

    def _due_apps(self) -> list[AppEntry]:
        now_s = self._clock.now_s()
        ended = [entry for entry in self._entries if entry.ended and entry.session is None]
        ended.sort(key=_ended_at_s)
        beyond = max(0, len(ended) - self._settings.keep_apps)
        return [
            entry
            for place, entry in enumerate(ended)
            if (place < beyond or now_s - _ended_at_s(entry) >= self._settings.keep_s)
            and now_s - _ended_at_s(entry) >= SETTLED_S
        ]

    async def _archive_part(self, due: list[AppEntry]) -> int:
        """Archive the events of some apps, and some of no app. Returns how many of no app there were."""
        app_ids = [entry.app_id for entry in due]
        horizon_s = self._clock.now_s() - self._settings.keep_s
        # The summary covers what it has read; a start needs nothing older than its snapshot.
        covered = self._recorder.summary.sequence

        def read(store: StateStore) -> tuple[list[StoredEvent], list[StoredEvent]]:
            service = store.service_events(through=covered, limit=_SERVICE_EVENTS_A_FILE)
            old = [event for event in service if event.time_s < horizon_s]
            of_apps = [event for app_id in app_ids for event in store.events(app_id=app_id)]
            return [event for event in of_apps if event.sequence <= covered], old

        of_apps, of_service = await self._recorder.read(read)
        events = [*of_apps, *of_service]
        if not events and not app_ids:
            return 0
        name = NO_ARCHIVE
        if self._settings.archive and events:
            name = await asyncio.to_thread(write_archive, self._folder, events)
        removed = Removed(
            app_ids=tuple(app_ids),
            archive=name,
            through=covered,
            service_through=max((event.sequence for event in of_service), default=0),
        )

        def remove(change: Change) -> None:
            for entry in due:
                # The fluid fair cluster forgets the app, so what it says of the app now is final.
                finish = pb.Finish()
                finish.CopyFrom(entry.finish)
                finish.rho.update(self._final_rho(entry))
                change.put(entry, finish=finish)
            change.event("events_archived", detail={"apps": len(app_ids), "events": len(events), "archive": name})
            change.remove(removed)
            change.then(lambda: self._entries.archive(app_ids))

        await self._changes.make(remove)
        return len(of_service)


def _ended_at_s(entry: AppEntry) -> float:
    return entry.finished_at_s or entry.submitted_at_s
