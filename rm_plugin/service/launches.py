"""Launch and kill app masters in the engine, one act at a time for each app. Failed launches are tried again."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

from rm_plugin.engines.port import AmLaunch, AppLauncher, EngineAttempts
from rm_plugin.service.changes import Changes
from rm_plugin.service.entries import AppEntry
from themis.apps import AppSpec
from themis.attempt_proof import hashed, new_token
from themis.clock import Clock
from themis.config.rm_settings import RmSettings
from themis.errors import ThemisError, UnreachableError

LOG = logging.getLogger("themis.rm")

RELAUNCH_EVERY_S = 5.0
"""Seconds between two tries to start an app while the engine is unavailable."""
_SHORTAGES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE))


class Launches:
    """The launches and kills of app masters. It decides about no app.

    Args:
        settings: Folders, addresses and the number of attempts.
        launcher: The engine's side.
        changes: Writes the hash of a token before the attempt can know the token.
        clock: The present time.
        refusal_key: Proves refusals to the attempts that are launched.
    """

    def __init__(
        self, settings: RmSettings, launcher: AppLauncher, changes: Changes, clock: Clock, *, refusal_key: str
    ) -> None:
        self.rm_address = ""
        """Where app masters reach this service; set before the first launch."""
        self.rm_environment: Mapping[str, str] = {}
        """Variables by which app masters trust its certificate, with TLS; set likewise."""
        self._settings = settings
        self._launcher = launcher
        self._changes = changes
        self._clock = clock
        self._refusal_key = refusal_key
        self._failed: set[str] = set()
        self.again_at_s = 0.0
        """When failed launches are to be tried again."""
        # The attempt and the token of each app whose app master is being started.
        self._tokens: dict[str, tuple[int, str]] = {}
        # A kill would miss an app master that comes later, so it waits for a launch of the same app.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def failed(self, app_id: str) -> bool:
        """Whether the launch of an app failed, and is to be tried again."""
        return app_id in self._failed

    async def launch(self, entry: AppEntry, gpus: int) -> bool:
        """Launch the attempt of an app.

        Args:
            entry: The app.
            gpus: The number of GPUs in the cluster.

        Returns:
            Whether it was launched. Otherwise the engine is unavailable or this machine lacks resources: try again.

        Raises:
            ThemisError: It cannot be launched.
        """
        launch = await self._order(entry, gpus)
        try:
            async with self._lock(entry.app_id):
                entry.pid = await self._launcher.launch(launch)
        except ThemisError as error:
            if not isinstance(error, UnreachableError) and not _is_shortage(error):
                raise
            if entry.app_id not in self._failed:
                LOG.warning("%s waits to be started: %s", entry.app_id, error)
            entry.launch_wait = f"waits to be started: {error}"
            if entry.is_active:
                self._failed.add(entry.app_id)
            self.again_at_s = self._clock.now_s() + RELAUNCH_EVERY_S
            return False
        if entry.app_id in self._failed:
            LOG.info("%s is started, after a wait", entry.app_id)
        self.forget(entry.app_id)
        entry.launch_wait = ""
        return True

    def give_up(self, app_id: str) -> bool:
        """Try the failed launch of an app no more. Returns whether there was one."""
        is_failed = app_id in self._failed
        self._failed.discard(app_id)
        return is_failed

    def forget(self, app_id: str) -> None:
        """Forget an app that was launched or has ended."""
        self._failed.discard(app_id)
        self._tokens.pop(app_id, None)

    async def adopted(self, entry: AppEntry) -> bool:
        """Whether the app master of a former ResourceManager lives; waits while the engine is unavailable."""
        failed = False
        while True:
            try:
                lives = await self._launcher.adopt(entry.app_id, entry.attempt, entry.pid)
            except UnreachableError as error:
                if not failed:
                    LOG.warning("%s cannot be adopted yet, the engine is unavailable: %s", entry.app_id, error)
                failed = True
                await asyncio.sleep(RELAUNCH_EVERY_S)
            else:
                if failed:
                    LOG.info("the engine answers again for %s", entry.app_id)
                return lives

    async def kill(self, app_id: str, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Kill all processes of an app, after a launch that is under way, if that is still wanted then.

        Raises:
            ThemisError: The engine cannot kill them now.
        """
        async with self._lock(app_id):
            if is_wanted():
                await self._launcher.kill(app_id)

    async def attempts(self, entry: AppEntry) -> EngineAttempts:
        """Return the attempts of an app that the engine has started.

        Raises:
            UnreachableError: The engine does not answer.
        """
        try:
            return await self._launcher.attempts(entry.app_id, entry.attempt)
        except ThemisError as error:
            raise UnreachableError("the engine cannot say which attempt it started", value=entry.app_id) from error

    def waiting(self, app_id: str) -> str:
        """Return why the engine has not started the app master yet; empty if it has."""
        return self._launcher.waiting(app_id)

    def queue(self, entry: AppEntry) -> str:
        """Return the queue of an app: as submitted, or to which an operator moved it in the engine."""
        return ("" if entry.ended else self._launcher.queue(entry.app_id)) or entry.spec.queue

    async def shutdown(self) -> None:
        """Kill all processes of all apps, as far as the engine can."""
        try:
            await self._launcher.shutdown()
        except ThemisError as error:
            LOG.error("apps may run on: %s", error)

    async def _order(self, entry: AppEntry, gpus: int) -> AmLaunch:
        settings, folder = self._settings, app_folder(self._settings, entry.app_id)
        token = await self._token_of(entry)
        environment = {
            "THEMIS_RM_ADDRESS": ",".join(settings.standby.addresses) or self.rm_address,
            "THEMIS_APP_DIR": str(folder),
            "THEMIS_RM_ABSENCE_S": repr(settings.rm_absence_s),
            **self.rm_environment,
        }
        return AmLaunch(
            app_id=entry.app_id,
            attempt=entry.attempt,
            environment=environment,
            token=token,
            working_dir=folder,
            name=entry.spec.name,
            user=entry.spec.user,
            tasks_memory_mb=_tasks_memory_mb(entry.spec, gpus),
            queue=entry.spec.queue,
            attempts_left=settings.am_max_attempts - (entry.attempt - 1 - entry.attempt_losses.excused_attempts),
            failures_window_s=settings.am_failures_window_s,
        )

    async def _token_of(self, entry: AppEntry) -> str:
        """Return the token of the attempt to be started. Its hash is written before the attempt can know it.

        A launch that is tried again has the same token: the engine may have accepted the first one.
        """
        attempt, token = self._tokens.get(entry.app_id, (0, ""))
        if attempt != entry.attempt:
            token = new_token(self._refusal_key, entry.app_id)
            self._tokens[entry.app_id] = entry.attempt, token
            await self._changes.make_surely(lambda change: change.put(entry, token_sha256=hashed(token)))
        return token

    def _lock(self, app_id: str) -> asyncio.Lock:
        return self._locks.setdefault(app_id, asyncio.Lock())


def _tasks_memory_mb(spec: AppSpec, gpus: int) -> int:
    """Return the memory of all tasks that can run at a time: each has a GPU, or a node."""
    return spec.resources.memory_mb * min(gpus, sum(job.shape.tasks for job in spec.jobs))


def app_folder(settings: RmSettings, app_id: str) -> Path:
    """Return the folder of an app's files."""
    return settings.files_dir.absolute() / "apps" / app_id


def _is_shortage(error: ThemisError) -> bool:
    """Whether this machine lacks disk space, memory, processes or files for now: no fault of the app."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _SHORTAGES
