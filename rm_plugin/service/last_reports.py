"""The last report of each app, which counts in a round that its app master answers too late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from rm_plugin.arbiter.round_values import AppStanding, RoundSnapshot
from themis.bids import AppReport
from themis.cluster import Allocation


class LastReports:
    """Remembers reports. One counts again for `keep_s` seconds, as long as its app holds the same GPUs.

    Its demands and its rho are little out of date then: an app without GPUs makes no progress, and the rho of all
    waiting apps grows alike. The paper's arbiter caches rho as well (NSDI'20, section 5).

    A report no longer counts once a lease of the app can be renewed: it may say that a job holds these GPUs, and could
    use more in addition to them, while the round offers them to all apps.

    Example: an app waits and reports at 100 s. In the round at 103 s it is late: its report of 100 s counts. It gets a
    GPU and is late again at 106 s: nothing counts, since the report is of an app without that GPU.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._reports: dict[str, tuple[AppReport, AppStanding, float]] = {}

    def take(self, snapshot: RoundSnapshot, reports: Mapping[str, AppReport]) -> None:
        """Remember the reports of a round. Apps that are not active any more are forgotten."""
        newest: dict[str, tuple[AppReport, AppStanding, float]] = {}
        for app in snapshot.apps:
            if app.app_id in reports:
                newest[app.app_id] = (reports[app.app_id], app, snapshot.now_s)
            elif app.app_id in self._reports:
                newest[app.app_id] = self._reports[app.app_id]
        self._reports = newest

    def of_late(self, snapshot: RoundSnapshot, app_ids: Iterable[str]) -> dict[str, AppReport]:
        """Return the reports that count for these apps in a round."""
        found = {}
        for app_id in app_ids:
            if app_id not in self._reports:
                continue
            report, then, at_s = self._reports[app_id]
            if snapshot.now_s - at_s <= self._keep_s and _held(then) == _held(snapshot.standing(app_id)):
                found[app_id] = replace(report, round_id=snapshot.round_id)
        return found


def _held(app: AppStanding) -> tuple[Allocation, Allocation]:
    return app.kept, app.renewable
