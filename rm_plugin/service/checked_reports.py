"""The reports of a round as far as they are believed; of an app to which nothing happened, only its times are checked.

What is believed of a report but for its times follows from its demands, the work left, and facts of the app. Of a
waiting app all of these stay as they are from round to round: the agent host reports the very same demands, and the
arbiter has the very same standing. Then only N_avg, the time and the number of active apps are new
(`CheckedContent`). So a round costs a few operations for each app that waits, and a whole check for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rm_plugin.arbiter.round_values import AppStanding, RoundSnapshot
from rm_plugin.service.claims import AppFacts, CheckedContent, Cuts, checked_content
from rm_plugin.service.entries import AppEntries, AppEntry
from themis.bids import AppReport
from themis.choices import BundleRule
from themis.cluster import Cluster


class _Known(NamedTuple):
    """A content, and what it follows from."""

    content: CheckedContent
    claim: AppReport
    standing: AppStanding
    cluster: Cluster
    available_gpus: int
    claimed_gpu_s: float | None
    grantable_gpus: int | None

    def holds(self, claim: AppReport, facts: tuple[AppStanding, Cluster, int, float | None, int | None]) -> bool:
        """Whether the content is that of a claim, given the facts that are in a snapshot and in an entry."""
        standing, cluster, available_gpus, claimed_gpu_s, grantable_gpus = facts
        mine = self.claim
        return (
            standing is self.standing
            # The GPU time of an app that holds GPUs grows.
            and not standing.granted_at_s
            and claim.demands is mine.demands
            and claim.phases_left is mine.phases_left
            and claim.restart_s == mine.restart_s
            and cluster is self.cluster
            and available_gpus == self.available_gpus
            and claimed_gpu_s == self.claimed_gpu_s
            and grantable_gpus == self.grantable_gpus
        )


class CheckedReports:
    """Checks reports and remembers the content of those that may come again unchanged.

    Args:
        entries: The apps.
        rule: How the values of bundles count time after a lease.
        gpus_available: The number of GPUs of all machines that are not lost.
        grantable_gpus: The most GPUs that an app can be granted now; None without a limit.
    """

    def __init__(
        self,
        entries: AppEntries,
        rule: BundleRule,
        gpus_available: Callable[[], int],
        grantable_gpus: Callable[[AppEntry], int | None],
    ) -> None:
        self._entries, self._rule, self._gpus_available = entries, rule, gpus_available
        self._grantable_gpus = grantable_gpus
        self._known: dict[str, _Known] = {}

    def check(self, snapshot: RoundSnapshot, claims: Mapping[str, AppReport]) -> dict[str, tuple[AppReport, Cuts]]:
        """Return each report of a round as far as it is believed, and what was cut (`checked_report`)."""
        before, self._known = self._known, {}
        now_s, cluster, active_apps = snapshot.now_s, snapshot.cluster, len(snapshot.apps)
        available_gpus = self._gpus_available()
        contentions, checked = snapshot.contentions.by_app(list(claims)), {}
        for app_id, claim in claims.items():
            standing, entry = snapshot.standing(app_id), self._entries.get(app_id)
            facts = standing, cluster, available_gpus, entry.claimed_gpu_s, self._grantable_gpus(entry)
            known = before.get(app_id)
            if known is None or not known.holds(claim, facts):
                known = _Known(checked_content(claim, self.facts_of(snapshot, app_id)), claim, *facts)
            self._known[app_id] = known
            elapsed_s = now_s - standing.submitted_at_s
            checked[app_id] = known.content.believed(claim, contentions[app_id], elapsed_s, active_apps)
        return checked

    def used_gpu_s(self, app_id: str) -> float:
        """Return what is metered of the work of an app whose report was checked last (`metered_gpu_s`)."""
        return self._known[app_id].content.used_gpu_s

    def facts_of(self, snapshot: RoundSnapshot, app_id: str) -> AppFacts:
        """Return what is known of an app in this round, without asking it."""
        standing, entry = snapshot.standing(app_id), self._entries.get(app_id)
        return AppFacts(
            spec=entry.spec,
            cluster=snapshot.cluster,
            available_gpus=self._gpus_available(),
            free_gpus=snapshot.free_gpus,
            kept=standing.kept,
            elapsed_s=snapshot.now_s - standing.submitted_at_s,
            attained_gpu_s=standing.attained_gpu_s(snapshot.now_s),
            contention=snapshot.contentions.of(app_id),
            active_apps=len(snapshot.apps),
            lease_s=snapshot.lease_s,
            rule=self._rule,
            claimed_gpu_s=entry.claimed_gpu_s,
            grantable_gpus=self._grantable_gpus(entry),
        )
