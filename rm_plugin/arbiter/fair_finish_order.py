"""In which order `fair_finish` serves apps. The policy and its estimates both ask this module."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rm_plugin.arbiter.user_ranks import Users
from themis.values import Value

OVERRUN_LEFT = 3.0
"""An app that overran counts as needing this many times as much service again as it has had."""


class Contender(Value, frozen=True, kw_only=True):
    """What the order of an app follows from.

    Attributes:
        app_id: The app.
        submitted_at_s: When it was submitted.
        due_s: Its due date: when it ends on the fluid fair cluster.
        left_gpu_s: The service that it has left.
        time_left_s: Seconds that it needs with all GPUs that it can use.
        restart_s: Seconds of a restart.
        kept_gpus: GPUs that it holds beyond this round.
        held_gpus: These, and those whose leases end with this round.
        wanted_gpus: All that it can use.
        overran: Whether it did far more work than it declared.
    """

    app_id: str
    submitted_at_s: float
    due_s: float
    left_gpu_s: float
    time_left_s: float
    restart_s: float
    kept_gpus: int
    held_gpus: int
    wanted_gpus: int
    overran: bool = False

    @property
    def may_be_pressed(self) -> bool:
        """Whether it could be pressed: it keeps no GPUs, wants some, and did not overrun."""
        return bool(self.wanted_gpus) and not (self.kept_gpus or self.overran)

    @property
    def needs_s(self) -> float:
        """Seconds from its next GPUs to its end. An app that holds nothing needs a restart too."""
        return self.time_left_s + (0.0 if self.held_gpus else self.restart_s)


class FairFinishOrder(Value, frozen=True, kw_only=True):
    """The pressed apps, most pressed first: each gets one gang. Then all apps, for everything that they can use."""

    pressed: tuple[str, ...]
    all: tuple[str, ...]


def fair_finish_order(
    apps: Sequence[Contender], users: Users, *, now_s: float, lease_s: float, preemption_margin: float
) -> FairFinishOrder:
    """The order of service of a round.

    An app is pressed if it keeps no GPUs and would be late after one more lease (`lateness_after_lease`). An app that
    keeps GPUs has a gang already: between ends of leases it would get one more in every round, and lose all but one
    when the leases end.

    Then come the users with the least service left, and their apps. An app that holds all that it can use counts as
    having less service left, by the preemption margin; one that holds half of that, by half the margin.
    """
    pressed = []
    for app in apps:
        lateness = lateness_after_lease(app, now_s=now_s, lease_s=lease_s) if app.may_be_pressed else None
        if lateness is not None:
            pressed.append((-lateness, app.app_id))
    ranks = users.ranks({app.app_id: _counted_left_gpu_s(app, preemption_margin) for app in apps})
    return FairFinishOrder(
        pressed=tuple([app_id for _, app_id in sorted(pressed)]),
        all=tuple(sorted(ranks, key=ranks.__getitem__)),
    )


def _counted_left_gpu_s(app: Contender, preemption_margin: float) -> float:
    share = min(1.0, app.held_gpus / app.wanted_gpus) if app.wanted_gpus else 0.0
    return app.left_gpu_s * (1.0 - preemption_margin * share)


def lateness_after_lease(app: Contender, *, now_s: float, lease_s: float) -> float | None:
    """How late an app would be if it waited for one more lease, relative to its time until the due date.

    It is late if its laxity, due - now - time left, is less than a lease and a restart. An app that holds nothing needs
    a restart too.

    Example: an app was submitted at 0 s, is due at 2,000 s, and has 900 s left. Leases last 600 s, a restart takes
    20 s and is part of the 900 s. At 400 s its laxity is 700 s, and it is not late. At 600 s its laxity is 500 s. After
    one more lease it would end at 2,100 s, so its lateness is 1.05.

    Returns:
        Seconds from its submission to its end, over those to its due date. Infinite if it was due at its submission.
        None if it is not late.
    """
    span_s, needed_s = app.due_s - app.submitted_at_s, now_s - app.submitted_at_s + app.needs_s
    if span_s - needed_s >= lease_s + app.restart_s:
        return None
    return (needed_s + lease_s) / span_s if span_s > 0.0 else math.inf


def latest_pressing_due_s(apps: Iterable[Contender], *, now_s: float, lease_s: float) -> float | None:
    """No app that is due at this time or later is pressed. None if no app can be pressed.

    Example: of the app above at 400 s it is 400 + 900 + 600 + 20 = 1,920 s.
    """
    return max((now_s + app.needs_s + lease_s + app.restart_s for app in apps if app.may_be_pressed), default=None)
