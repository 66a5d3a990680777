"""Equal shares: each user owns 1/n of each device type, and what a user leaves idle stays idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rm_plugin.policies.allox.values import Snapshot


def shares_left(snapshot: Snapshot, users: Sequence[str]) -> dict[str, Counter[str]]:
    """Machines by type that each user may still occupy.

    Args:
        snapshot: The cluster.
        users: All registered users. Machines that do not divide evenly go to the first users by id.
    """
    names = sorted(set(users))
    totals = Counter(machine.type_name for machine in snapshot.machines)
    left = {
        user: Counter(
            {type_name: count // len(names) + (rank < count % len(names)) for type_name, count in totals.items()}
        )
        for rank, user in enumerate(names)
    }
    for running in snapshot.running:
        left[running.job.user][running.type_name] -= 1
    return left
