"""The last report of each app. It spares a question while it is recent, and counts for an app that answers too late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from rm_plugin.arbiter.round_values import AppStanding, RoundSnapshot
from themis.bids import AppReport, RhoOf
from themis.cluster import Allocation, Cluster
from themis.values import Value


class _Last(Value, frozen=True, kw_only=True):
    """A report, with the app, the cluster and what the engine was believed to grant the app when it was made.

    `news` is the number of news of all apps when the round asked.
    """

    report: AppReport
    app: AppStanding
    cluster: Cluster
    grantable_gpus: int | None
    news: int
    at_s: float


class LastReports:
    """Remembers reports. One counts again as long as its app holds the same GPUs, and for a bounded time.

    Its demands and its rho are little out of date then: an app without GPUs makes no progress, and the rho of all
    waiting apps grows alike. The paper's arbiter caches rho as well (NSDI'20, section 5).

    A report no longer counts once a lease of the app can be renewed: it may say that a job holds these GPUs, and could
    use more in addition to them, while the round offers them to all apps.

    Example: an app waits and reports at 100 s. In the round at 103 s it is late: its report of 100 s counts. It gets a
    GPU and is late again at 106 s: nothing counts, since the report is of an app without that GPU.

    Args:
        keep_s: How long the last report of an app counts that was asked and is late, in seconds.
        grantable_gpus: The most GPUs that an app can be granted now; None without a limit.
    """

    def __init__(self, keep_s: float, grantable_gpus: Callable[[str], int | None]) -> None:
        self._keep_s = keep_s
        self._grantable_gpus = grantable_gpus
        self._last: dict[str, _Last] = {}
        self._news_count = self._asked_at_news = 0
        self._news: dict[str, int] = {}
        """The number of the newest news of an app."""

    def take(self, snapshot: RoundSnapshot, reports: Mapping[str, AppReport]) -> None:
        """Remember the reports of a round. Apps that are not active any more are forgotten."""
        newest: dict[str, _Last] = {}
        for app in snapshot.apps:
            if app.app_id in reports:
                newest[app.app_id] = _Last(
                    report=reports[app.app_id],
                    app=app,
                    cluster=snapshot.cluster,
                    grantable_gpus=self._grantable_gpus(app.app_id),
                    news=self._asked_at_news,
                    at_s=snapshot.now_s,
                )
            elif app.app_id in self._last:
                newest[app.app_id] = self._last[app.app_id]
        self._last = newest
        self._news = {app_id: number for app_id, number in self._news.items() if app_id in newest}

    def note_news(self, app_id: str) -> None:
        """Note that an app said something that its last report may not say: the next round has to ask it again.

        News can come while a round waits for other apps, after the report of this one.
        """
        self._news_count += 1
        self._news[app_id] = self._news_count

    def recent(
        self, snapshot: RoundSnapshot, app_ids: Iterable[str], age_s: float, rho_of: RhoOf
    ) -> dict[str, AppReport]:
        """Return the reports for which a round need not ask again: at most `age_s` seconds old, and without news since.

        The round asks the other apps now. Rho changes with the time, so an app of which the policy uses rho (`rho_of`)
        is always asked.
        """
        self._asked_at_news = self._news_count
        return {
            app_id: replace(last.report, round_id=snapshot.round_id)
            for app_id, last in self._of_same_gpus(snapshot, app_ids, age_s)
            if self._news.get(app_id, 0) <= last.news
            and last.cluster is snapshot.cluster
            and last.grantable_gpus == self._grantable_gpus(app_id)
            and not rho_of.asks(last.report.demands)
        }

    def of_late(self, snapshot: RoundSnapshot, app_ids: Iterable[str]) -> dict[str, AppReport]:
        """Return the reports that count for these apps in a round, as they were asked and did not answer."""
        return {
            app_id: replace(last.report, round_id=snapshot.round_id)
            for app_id, last in self._of_same_gpus(snapshot, app_ids, self._keep_s)
        }

    def _of_same_gpus(
        self, snapshot: RoundSnapshot, app_ids: Iterable[str], age_s: float
    ) -> Iterable[tuple[str, _Last]]:
        for app_id in app_ids:
            last = self._last.get(app_id)
            if last is None or snapshot.now_s - last.at_s > age_s:
                continue
            if _held(last.app) == _held(snapshot.standing(app_id)):
                yield app_id, last


def _held(app: AppStanding) -> tuple[Allocation, Allocation]:
    return app.kept, app.renewable
