"""Watch app masters: which one is silent or late with a lease, and whose attempt is to be started again."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from enum import Enum

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.launches import Launches
from rm_plugin.service.starts import Starts
from themis.clock import Clock
from themis.config.rm_settings import RmSettings
from themis.wire import themis_pb2 as pb


class Due(Enum):
    """What is to be done about an app now. The value says why, for users."""

    NEXT_ATTEMPT = "the delay of its next attempt is over"
    LAUNCH = "its launch failed, and is tried again"
    UNUSED_LEASES = "it ran out before the next attempt registered"
    """Leases end. The engine has ended all of the former attempt, so nothing runs on them."""
    LATE_LEASES = "the lease was not given back in time"
    """The app is taken by force, as with the two below."""
    SILENCE = "the app master is silent"
    NO_REGISTRATION = "it never registered"


class AmWatch:
    """The app masters that run, start or are to start, and what is due of them. It changes no app's state.

    Deadlines stand still while app masters cannot be heard or the engine is unavailable: then every app gets its full
    time again.

    Args:
        settings: The deadlines.
        arbiter: Holds the leases.
        launches: Which launches failed, or wait in the engine.
        starts: Which apps wait for their turn to start.
        clock: The present time.
    """

    def __init__(
        self, settings: RmSettings, arbiter: Arbiter, launches: Launches, starts: Starts, clock: Clock
    ) -> None:
        self.settings = settings
        self._arbiter = arbiter
        self._launches = launches
        self._starts = starts
        self._clock = clock
        # The active apps for which the agent host does not answer, and which do not wait for admission.
        self._watched: dict[str, AppEntry] = {}
        # The apps whose next attempt waits until `next_at_s` of their losses.
        self._delayed: set[str] = set()
        self._resumed_at_s = -math.inf
        self._engine_away = False
        self._engine_away_at_s = -math.inf

    def __len__(self) -> int:
        return len(self._watched)

    def __iter__(self) -> Iterator[AppEntry]:
        return iter(self._watched.values())

    def add(self, entry: AppEntry) -> None:
        """Watch an app from now on."""
        self._watched[entry.app_id] = entry

    def discard(self, app_id: str) -> None:
        """Watch an app no longer, if it is watched."""
        self._watched.pop(app_id, None)
        self._delayed.discard(app_id)

    def note_start(self, entry: AppEntry) -> None:
        """Give an app master its time to register, during which its leases wait for it."""
        entry.last_seen_s = self._clock.now_s()
        self._arbiter.set_starting(entry.app_id, entry.last_seen_s + self.settings.am_start_s)

    def delay(self, entry: AppEntry) -> None:
        """Let the next attempt wait if attempts were lost one after the other without progress."""
        losses = entry.attempt_losses
        if losses.next_at_s > self._clock.now_s():
            self._delayed.add(entry.app_id)
            lost = f"{len(losses.fruitless_at_s)} attempts in a row were lost without progress"
            entry.launch_wait = f"{lost}, so the next one starts {losses.delay_s:.0f} s after the last loss"

    def is_delayed(self, app_id: str) -> bool:
        """Whether the next attempt of an app waits after losses without progress."""
        return app_id in self._delayed

    def end_delay(self, app_id: str) -> None:
        """Let the next attempt of an app wait no longer."""
        self._delayed.discard(app_id)

    def resume(self) -> None:
        """Restart the time until app masters count as silent and leases as overdue.

        Call this during or after an outage in which the service could not receive messages of app masters, write to
        the store, or use the engine.
        """
        self._resumed_at_s = self._clock.now_s()
        for entry in self._watched.values():
            entry.last_seen_s = self._resumed_at_s

    @property
    def is_engine_away(self) -> bool:
        """Whether the engine can neither start containers nor report their ends."""
        return self._engine_away

    def engine_is_away(self, away: bool) -> None:
        """Note whether the engine can start containers and report their ends.

        Otherwise no deadline passes: an app can neither start on its leases nor give them back. Once the engine is
        back, every deadline starts again.
        """
        if away or self._engine_away:
            self._engine_away_at_s = self._clock.now_s()
            self.resume()
        self._engine_away = away

    def excuses_losses(self, now_s: float) -> bool:
        """Whether attempts that are lost now may be lost to the engine, which is or was just unavailable."""
        return now_s - self._engine_away_at_s < self.settings.am_expiry_s

    def due(self, but_for: Collection[str]) -> Iterator[tuple[AppEntry, Due]]:
        """Yield the apps about which something is to be done, but for some; asks idle app masters to rest."""
        now_s = self._clock.now_s()
        if self._engine_away:
            self._engine_away_at_s = now_s
            self.resume()
        # After a suspension of this service, overdue leases get a new grace period.
        late = now_s - self._resumed_at_s >= self.settings.lease.grace_s
        overdue = self._arbiter.overdue_apps(now_s) if late else set()
        for entry in list(self._watched.values()):
            if entry.app_id in but_for:
                continue
            due = self._due(entry, now_s, overdue=entry.app_id in overdue)
            if self.settings.starts_at_grant:
                self._ask_to_rest(entry, now_s)
            if due is not None:
                yield entry, due

    def _due(self, entry: AppEntry, now_s: float, *, overdue: bool) -> Due | None:
        """What has to be done about an app now. Returns None for most apps, so a look at all of them is cheap."""
        is_delayed = entry.app_id in self._delayed
        is_gone = entry.registered_attempt != entry.attempt or is_delayed
        if overdue and (is_gone or self._starts.waits(entry.app_id)):
            return Due.UNUSED_LEASES
        if overdue:
            return Due.LATE_LEASES
        if is_delayed:
            is_due = not entry.leave_reason and now_s >= entry.attempt_losses.next_at_s
            return Due.NEXT_ATTEMPT if is_due else None
        if self._starts.waits(entry.app_id):
            return None
        if self._launches.failed(entry.app_id):
            # Apps that are to leave are ended by their kill or pause. All others wait for the engine.
            is_due = not entry.leave_reason and now_s >= self._launches.again_at_s
            return Due.LAUNCH if is_due else None
        entry.launch_wait = "" if entry.session is not None else self._launches.waiting(entry.app_id)
        if entry.launch_wait:
            # Its time to register counts from the start of its container.
            entry.last_seen_s = now_s
            return None
        known = entry.registered_attempt == entry.attempt
        # YARN restarts an app master by itself. Until the new one registers, it counts as starting, not as silent.
        coming = not known or (self.settings.engine == "yarn" and entry.session is None)
        if now_s - entry.last_seen_s > (self.settings.am_start_s if coming else self.settings.am_expiry_s):
            return Due.SILENCE if known else Due.NO_REGISTRATION
        return None

    def _ask_to_rest(self, entry: AppEntry, now_s: float) -> None:
        """Ask an app master to rest that has had no GPUs for `am_idle_s`. One that cannot is asked again as late."""
        if entry.session is None or entry.leave_reason or self._arbiter.table.holds(entry.app_id):
            entry.idle_since_s = now_s
        elif now_s - entry.idle_since_s >= self.settings.am_idle_s:
            entry.idle_since_s = now_s
            entry.session.send(pb.RmMessage(ask_rest=pb.AskRest()))
