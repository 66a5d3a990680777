"""Reports of one app or of many: rho with what an app keeps, its demands, and the work left of its search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from am.agent.model.fairness import shared_times_s
from am.agent.model.outlook import Outlook, times_of
from am.agent.model.views import AppView, ClusterView
from themis.bids import AppReport, RhoOf

Floats = NDArray[np.float64]


def make_report(app: AppView, cluster: ClusterView, round_id: int, rho_of: RhoOf = RhoOf.EVERY_APP) -> AppReport:
    """The report of one app, at the moment of its view.

    Example: two jobs of 400 s on up to 2 GPUs each wait without GPUs. 8 GPUs, two active apps, N_avg = 2, S = 1, leases
    of 600 s, submitted 100 s ago. t_ideal = 800 / 4 * 2 = 400 s. The app waits for one lease and then ends on its fair
    share of 4 GPUs after 200 s, so t_shared = 100 + 600 + 200 = 900 s and rho = 2.25. It demands two gangs of 1 to 2.
    """
    moment = np.array([app.elapsed_s]), np.array([app.contention])
    return make_reports([Outlook(app, cluster)], *moment, cluster, round_id, rho_of)[0]


def make_reports(
    outlooks: Sequence[Outlook],
    elapsed_s: Floats,
    contentions: Floats,
    cluster: ClusterView,
    round_id: int,
    rho_of: RhoOf = RhoOf.EVERY_APP,
) -> list[AppReport]:
    """The reports of N apps, in their order.

    An app whose rho the round does not ask for reports neither its times nor, if it has no demands, the work left.

    Args:
        outlooks: The N apps.
        elapsed_s: Seconds since each was submitted [N].
        contentions: N_avg of each [N].
        cluster: The cluster now.
        round_id: The round that asks.
        rho_of: The apps whose rho it asks for.
    """
    asked = [rho_of.asks(outlook.demands) for outlook in outlooks]
    figures = np.full((len(outlooks), 3), np.nan)
    if any(asked):
        of_asked = np.array(asked)
        moment = elapsed_s[of_asked], contentions[of_asked]
        figures[of_asked] = report_times(list(compress(outlooks, asked)), *moment, cluster)
    return [
        AppReport(
            app_id=outlook.app.app_id,
            round_id=round_id,
            rho=rho,
            t_shared_s=t_shared_s,
            t_ideal_s=t_ideal_s,
            demands=outlook.demands,
            phases_left=outlook.phases_left if is_asked or outlook.demands else (),
            restart_s=outlook.app.restart_s,
            provisional=any(job.pace_guessed for job in outlook.app.jobs),
        )
        for outlook, is_asked, (rho, t_shared_s, t_ideal_s) in zip(outlooks, asked, figures.tolist(), strict=True)
    ]


def report_times(outlooks: Sequence[Outlook], elapsed_s: Floats, contentions: Floats, cluster: ClusterView) -> Floats:
    """Rho, t_shared and t_ideal of N apps [N, 3], with arguments as of `make_reports`."""
    times = times_of(outlooks, cluster, share_if_sooner=True)
    ideal_s = times.cluster_s * contentions
    # t_shared of the empty bundle.
    shared_s = shared_times_s(
        cluster.rule,
        times.empty_s,
        spent_s=elapsed_s + times.switch_s,
        share_s=times.share_s,
        lease_s=cluster.lease_s,
    )
    return np.column_stack((shared_s / ideal_s, shared_s, ideal_s))
