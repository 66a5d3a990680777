"""Archive old events, so that the store, the memory and the start of a ResourceManager stay bounded over months.

An ended app keeps its events for `retention.keep_s`, if it is among the `retention.keep_apps` that ended last. Then
they move to an archive file. The app's row stays in the store as its summary: state, times, GPU time, rho, jobs and
best checkpoint are still listed and shown. The memory forgets the app. Events of no app, such as those of rounds, are
archived by age.

An app that runs for months keeps its events, but for those that its jobs cause all the time: these are archived an hour
or two after they were written. What they say is also in each job's history, and in the newest heartbeat.

The code of an app goes with it: an archive of code is removed once no app in the memory has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rm_plugin.service.archive import FOLDER, NO_ARCHIVE, write_archive
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.code_store import CodeStore
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.launches import app_folder
from rm_plugin.service.recorder import Recorder, Removed
from rm_plugin.service.store import StoredEvent, StoreError
from themis.clock import Clock
from themis.code_archive import CODE_ARCHIVE
from themis.config.rm_settings import RmSettings
from themis.wire import themis_pb2 as pb

LOG = logging.getLogger("themis.rm")

PASS_EVERY_S = 60.0
SETTLED_S = 60.0
"""Seconds after its end in which no app is archived: clients that wait for it read its last events."""
FREQUENT = ("job_progress", "validation", "checkpoint")
"""What a job causes for as long as it runs, at most some a second. No start reads these events."""
FREQUENT_EVERY_S = 3600.0
_APPS_A_FILE = 200
_EVENTS_A_FILE = 20_000
"""A file with this many events takes no further app. One app may have more."""
_EVENTS_A_READ = 5_000


class Retention:
    """Archives what is too old or too much, in small parts."""

    def __init__(
        self,
        *,
        settings: RmSettings,
        entries: AppEntries,
        changes: Changes,
        recorder: Recorder,
        codes: CodeStore,
        clock: Clock,
        final_rho: Callable[[AppEntry], Mapping[str, float]],
    ) -> None:
        self._settings = settings.retention
        self._codes = codes
        self._app_folder = partial(app_folder, settings)
        self._final_rho = final_rho
        self._folder = settings.files_dir / FOLDER
        self._entries = entries
        self._changes = changes
        self._recorder = recorder
        self._clock = clock
        # The newest event of an hour ago, and of each app the newest whose frequent events are archived.
        self._hour_ago = recorder.summary.sequence
        self._frequent_through: dict[str, int] = {}

    async def run(self) -> None:
        """Archive once a minute, frequent events once an hour; runs for ever."""
        frequent_at_s = self._clock.now_s() + FREQUENT_EVERY_S
        while True:
            await asyncio.sleep(PASS_EVERY_S)
            try:
                await self.archive_old()
                await self.remove_code()
                if self._clock.now_s() >= frequent_at_s:
                    frequent_at_s = self._clock.now_s() + FREQUENT_EVERY_S
                    await self.archive_frequent()
            except (StoreError, OSError) as error:
                # Nothing was removed. The next pass tries again.
                LOG.warning("old events or code cannot be removed yet: %s", error)
            except Exception:
                LOG.exception("old events or code cannot be removed")

    async def archive_old(self) -> int:
        """Archive all that is due. Returns the number of apps.

        Raises:
            OSError: The archive cannot be written, or the store (StoreError).
        """
        apps = 0
        while True:
            part = await self._archive_part(self._due_apps()[:_APPS_A_FILE])
            if not part.events and not part.apps:
                return apps
            apps += len(part.apps)

    async def archive_frequent(self) -> int:
        """Archive the frequent events of apps that have not ended, but for those since the last call.

        Returns:
            The number of events.

        Raises:
            OSError: The archive cannot be written, or the store (StoreError).
        """
        through, self._hour_ago = self._hour_ago, self._recorder.summary.sequence
        waiting = deque(entry.app_id for entry in self._entries if not entry.ended)
        done = self._frequent_through = {app_id: self._frequent_through.get(app_id, 0) for app_id in waiting}
        events = 0
        while waiting:
            part = _Part()
            name = await asyncio.to_thread(self._write, self._frequent(part, waiting, done.copy(), through))
            if part.events:
                await self._changes.make(partial(_remove_frequent, part=part, name=name))
            done |= part.pieces
            events += part.events
        return events

    def _frequent(self, part: _Part, waiting: deque[str], after: dict[str, int], through: int) -> Iterator[StoredEvent]:
        """Yield frequent events of apps up to a sequence number, and note in `part` what they are.

        Apps of which there are no more leave `waiting`. `after` has the sequence number that each begins after.
        """
        while waiting and part.events < _EVENTS_A_FILE:
            app_id = waiting[0]
            read = self._recorder.store.events(after=after[app_id], app_id=app_id, limit=_EVENTS_A_READ)
            old = [event for event in read if event.sequence <= through]
            if not old:
                waiting.popleft()
                continue
            found = [event for event in old if event.kind in FREQUENT]
            yield from found
            part.events += len(found)
            after[app_id] = old[-1].sequence
            part.pieces.append((app_id, after[app_id]))

    async def remove_code(self) -> int:
        """Remove the code that no app in the memory has. Returns the number of archives.

        Raises:
            OSError: The folder cannot be changed, or the store (StoreError).
        """

        def used() -> set[str]:
            return {entry.spec.program.code.sha256 for entry in self._entries if entry.spec.program.code is not None}

        async def note(archives: int) -> None:
            # Written first: a ResourceManager that another one replaced cannot write, so it removes nothing.
            await self._changes.make(lambda change: change.event("code_removed", detail={"archives": archives}))

        return await self._codes.remove_unused(used, note)

    def _due_apps(self) -> list[AppEntry]:
        now_s = self._clock.now_s()
        ended = [entry for entry in self._entries.ended() if entry.session is None]
        ended.sort(key=lambda entry: (_ended_at_s(entry), entry.number))
        beyond = max(0, len(ended) - self._settings.keep_apps)
        return [
            entry
            for place, entry in enumerate(ended)
            if (place < beyond or now_s - _ended_at_s(entry) >= self._settings.keep_s)
            and now_s - _ended_at_s(entry) >= SETTLED_S
        ]

    async def _archive_part(self, due: list[AppEntry]) -> _Part:
        """Archive some of the apps, and some events of no app. Returns what was archived."""
        part = _Part()
        # A start needs nothing that the summary covers, and a removal writes a snapshot of it.
        covered = self._recorder.summary.sequence
        events = self._events(part, due, covered, self._clock.now_s() - self._settings.keep_s)
        # Not in the thread that reads: clients must not wait for a long file.
        name = await asyncio.to_thread(self._write, events)
        if not part.events and not part.apps:
            return part
        for app_id, through in part.pieces:
            # Few at a time, since other changes wait meanwhile.
            piece = Removed(app_ids=(), archive=name, through=0, pieces=((app_id, through),))
            await self._changes.make(partial(Change.remove, removed=piece))
        app_ids = tuple(entry.app_id for entry in part.apps)
        removed = Removed(app_ids=app_ids, archive=name, through=covered, pieces=(("", part.service_through),))

        def remove(change: Change) -> None:
            for entry in part.apps:
                # The fluid fair cluster forgets the app, so what it says of the app now is final.
                finish = pb.Finish()
                finish.CopyFrom(entry.finish)
                finish.rho.update(self._final_rho(entry))
                change.put(entry, finish=finish)
            change.event("events_archived", detail={"apps": len(app_ids), "events": part.events, "archive": name})
            change.remove(removed)
            change.then(lambda: self._entries.archive(app_ids))

        await self._changes.make(remove)
        copies = [self._app_folder(entry.app_id) / CODE_ARCHIVE for entry in part.apps if entry.spec.program.code]
        await asyncio.to_thread(_unlink, copies)
        return part

    def _write(self, events: Iterator[StoredEvent]) -> str:
        if self._settings.archive:
            return write_archive(self._folder, events)
        deque(events, maxlen=0)
        return NO_ARCHIVE

    def _events(self, part: _Part, due: list[AppEntry], covered: int, horizon_s: float) -> Iterator[StoredEvent]:
        """Yield the events to archive, and note in `part` what they are."""
        store = self._recorder.store
        for event in store.service_events(through=covered, limit=_EVENTS_A_READ):
            if event.time_s < horizon_s:
                yield event
                part.events, part.service_through = part.events + 1, event.sequence
        for entry in due:
            if part.events >= _EVENTS_A_FILE:
                return
            after = 0
            while events := store.events(after=after, app_id=entry.app_id, limit=_EVENTS_A_READ):
                events = tuple(event for event in events if event.sequence <= covered)
                if not events:
                    break
                if after:
                    part.pieces.append((entry.app_id, after))
                yield from events
                part.events += len(events)
                after = events[-1].sequence
            part.apps.append(entry)


def _remove_frequent(change: Change, part: _Part, name: str) -> None:
    change.event("events_archived", detail={"apps": 0, "events": part.events, "archive": name})
    change.remove(Removed(app_ids=(), archive=name, through=0, pieces=tuple(part.pieces), kinds=FREQUENT))


@dataclass(slots=True)
class _Part:
    """What a file has: whole apps, events in all, and the last event of no app.

    `pieces` are events of large apps that can be removed before the rest, or frequent ones: up to this sequence number.
    """

    apps: list[AppEntry] = field(default_factory=list)
    events: int = 0
    service_through: int = 0
    pieces: list[tuple[str, int]] = field(default_factory=list)


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        # The folder may be the user's own, who may have put something else there.
        with contextlib.suppress(OSError):
            path.unlink()


def _ended_at_s(entry: AppEntry) -> float:
    return entry.finished_at_s or entry.submitted_at_s
