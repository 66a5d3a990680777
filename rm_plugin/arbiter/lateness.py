"""How late an app would be: which apps `fair_finish` serves first, and in which order, also in its estimates."""

from __future__ import annotations

import math


def lateness_after_lease(
    *, submitted_at_s: float, due_s: float, now_s: float, left_s: float, lease_s: float, restart_s: float
) -> float | None:
    """How late an app would be if it waited for one more lease, relative to its time until the due date.

    The app is pressed if its laxity, due - now - time left, is less than a lease and a restart.

    Example: an app was submitted at 0 s, is due at 2,000 s, and has 900 s left. Leases last 600 s, a restart takes
    20 s. At 400 s its laxity is 700 s, and it is not pressed. At 600 s its laxity is 500 s. After one more lease it
    would end at 2,100 s, so its lateness is 1.05.

    Args:
        submitted_at_s: When it was submitted.
        due_s: Its due date.
        now_s: The present time.
        left_s: Seconds that it needs with all GPUs that it can use, with a restart if it holds nothing.
        lease_s: Seconds of a lease.
        restart_s: Seconds of a restart.

    Returns:
        Seconds from its submission to its end, over those to its due date. Infinite if it was due at its submission.
        None if it is not pressed.
    """
    span_s, needed_s = due_s - submitted_at_s, now_s - submitted_at_s + left_s
    if span_s - needed_s >= lease_s + restart_s:
        return None
    return (needed_s + lease_s) / span_s if span_s > 0.0 else math.inf
