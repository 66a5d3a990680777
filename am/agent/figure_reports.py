"""Reports of many apps whose rho was worked out at once: figures in arrays, a report where somebody looks at it."""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from am.agent.fairness import all_shared_s
from am.agent.views import Surroundings
from themis.bids import AppReport, GangDemand, PhaseLeft, RhoOf
from themis.reports import ReportGroup, Wanting

Figures = NDArray[np.float64]

_NO_APP = RhoOf.NO_APP


class Told(Protocol):
    """What an app reports beside its rho."""

    @property
    def app_id(self) -> str:
        """Its id."""
        ...

    @property
    def restart_s(self) -> float:
        """What moving one of its jobs costs, in seconds."""
        ...

    @property
    def demands(self) -> tuple[GangDemand, ...]:
        """What it could use."""
        ...

    @property
    def phases_left(self) -> tuple[PhaseLeft, ...]:
        """What its search has still to do."""
        ...


class FigureReports(ReportGroup):
    """What apps report all of which could use more.

    Args:
        round_id: The round.
        apps: The apps.
        places: The place of each among them, which nobody changes later.
        wanting: The id of each and what it could use.
        figures: Rho, t_shared and t_ideal of each [3, apps], NaN where nobody asked for them; times are in seconds.
    """

    def __init__(
        self, round_id: int, apps: Sequence[Told], places: Mapping[str, int], wanting: Wanting, figures: Figures
    ) -> None:
        super().__init__(round_id)
        self._apps, self._places, self._wanting, self._figures = apps, places, wanting, figures

    @property
    def app_ids(self) -> KeysView[str]:
        """Ids of the apps."""
        return self._places.keys()

    def wanting(self) -> Wanting:
        """All of them, with what they could use."""
        return self._wanting

    def worst(self, most: int) -> list[tuple[float, str]]:
        """(-rho, id) of those with the highest rho, at least so many of them if there are."""
        wanting, below = self._wanting, -self._figures[0]
        if most < len(wanting):
            # Equals of the last one are among them: their ids tell which come first.
            ranked = below.copy()
            ranked.partition(most - 1)
            places = (below <= ranked[most - 1]).nonzero()[0]
            wanting, below = [wanting[place] for place in places.tolist()], below[places]
        return list(zip(below.tolist(), [app_id for app_id, _ in wanting], strict=True))

    def tells(self, rho_of: RhoOf) -> bool:
        """True where all tell their rho, a number of 0 or more, who are asked for it."""
        # False for NaN too.
        return rho_of is _NO_APP or bool((self._figures[0] >= 0.0).all())

    def _make(self, app_id: str) -> AppReport:
        place = self._places[app_id]
        app, (rho, t_shared_s, t_ideal_s) = self._apps[place], self._figures[:, place].tolist()
        return AppReport(
            app_id=app_id,
            round_id=self.round_id,
            rho=rho,
            t_shared_s=t_shared_s,
            t_ideal_s=t_ideal_s,
            demands=app.demands,
            phases_left=app.phases_left,
            restart_s=app.restart_s,
        )


def figures_of(spent_s: Figures, share_s: Figures, ideal_s: Figures, around: Surroundings) -> Figures:
    """Rho, t_shared and t_ideal [3, apps] of apps that keep nothing, to the last bit what `fairness.Valuer` says.

    Args:
        spent_s: Seconds since each was submitted, and those of a restart.
        share_s: T of each on the fair share, in seconds.
        ideal_s: t_ideal of each, in seconds.
        around: The cluster now.
    """
    nothing_s = np.full(len(spent_s), np.inf)
    shared_s = all_shared_s(around.rule, nothing_s, spent_s=spent_s, share_s=share_s, lease_s=around.lease_s)
    return np.array((shared_s / ideal_s, shared_s, ideal_s))
