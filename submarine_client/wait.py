"""Wait for apps to end, also over restarts of the ResourceManager."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from submarine_client.connection import Connection
from submarine_client.progress import Progress
from themis.errors import ThemisError, UnreachableError
from themis.values import Value
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb

FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 8.0


class Pace(Value, frozen=True, kw_only=True):
    """How often to ask, and how long the ResourceManager may be unreachable, in seconds."""

    poll_s: float = 1.0
    patience_s: float = 120.0
    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class InterruptedWaitError(ThemisError):
    """The user stopped the wait; the apps continue."""

    exit_code = 3

    def __init__(self, app_ids: Sequence[str]) -> None:
        ids = " ".join(app_ids)
        these = f"app {ids} goes" if len(app_ids) == 1 else f"apps {ids} go"
        remedy = f"watch with `submarine app wait {ids}`, end with `submarine app kill {app_ids[0]}`"
        super().__init__(f"interrupted: {these} on running", remedy=remedy)


def wait_for(
    client: Connection,
    app_ids: Sequence[str],
    progress: Progress,
    pace: Pace,
    *,
    until: Callable[[pb.AppStatus], bool] = status.has_ended,
) -> tuple[pb.AppStatus, ...]:
    """Wait until every app has ended, or is as `until` says. Returns their last statuses in the order of `app_ids`.

    Raises:
        InterruptedWaitError: Ctrl-C.
        UnreachableError: The ResourceManager did not answer for `pace.patience_s` seconds.
    """
    try:
        return _wait(client, app_ids, progress, pace, until)
    except KeyboardInterrupt:
        raise InterruptedWaitError(app_ids) from None
    finally:
        progress.close()


def _wait(
    client: Connection,
    app_ids: Sequence[str],
    progress: Progress,
    pace: Pace,
    until: Callable[[pb.AppStatus], bool],
) -> tuple[pb.AppStatus, ...]:
    apps: dict[str, pb.AppStatus] = {}
    outage = _Outage(progress, pace)
    while True:
        try:
            for app_id in app_ids:
                if app_id not in apps or not until(apps[app_id]):
                    apps[app_id] = client.show(app_id)
        except UnreachableError as error:
            pace.sleep(outage.retry_after_s(error))
            continue
        outage.over()
        shown = tuple(apps[app_id] for app_id in app_ids)
        progress.update(shown)
        if all(map(until, shown)):
            return shown
        pace.sleep(pace.poll_s)


class _Outage:
    """A time in which the ResourceManager does not answer. Notes begin and end, and sets the pause between tries."""

    def __init__(self, progress: Progress, pace: Pace) -> None:
        self._progress = progress
        self._pace = pace
        self._since_s: float | None = None
        self._delay_s = FIRST_RETRY_S

    def retry_after_s(self, error: UnreachableError) -> float:
        """Return the seconds until the next try. Raises `error` once `patience_s` has passed."""
        now_s = self._pace.now_s()
        if self._since_s is None:
            self._since_s = now_s
            self._progress.note(f"the ResourceManager does not answer; trying for {self._pace.patience_s:g} s")
        left_s = self._since_s + self._pace.patience_s - now_s
        if left_s <= 0:
            raise error
        delay_s, self._delay_s = self._delay_s, min(2 * self._delay_s, LONGEST_RETRY_S)
        return min(delay_s, left_s)

    def over(self) -> None:
        """Note that the ResourceManager answers again."""
        if self._since_s is not None:
            self._progress.note("the ResourceManager answers again")
            self._since_s, self._delay_s = None, FIRST_RETRY_S
