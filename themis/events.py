"""The kinds of events, and which side may emit each (docs/reference/events.md describes them). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Emitter(StrEnum):
    """The side that an event comes from."""

    RESOURCE_MANAGER = "rm"
    APP_MASTER = "am"


UNREADABLE = "unreadable"
"""The kind that the log shows for an event whose row cannot be read."""

_OF_RESOURCE_MANAGER = (
    *("events_archived", "code_removed"),
    *("rm_started", "app_submitted", "app_state", "app_kill_wanted", "app_pause_wanted", "app_resumed"),
    *("am_started", "am_registered", "am_lost", "am_rested"),
    *("machine_joined", "machine_lost", "machine_back", "machine_drained", "machine_opened"),
    "user_acted",
    *("round_started", "round_reported", "round_offered", "round_bids", "round_auctioned", "round_granted"),
    "round_ended",
    *("lease_reserved", "lease_granted", "lease_renewed", "lease_expiring", "lease_released", "lease_revoked"),
    UNREADABLE,
)
_OF_APP_MASTER = (
    *("job_state", "tasks_started", "tasks_ended", "first_step", "start_cut_short", "stop_unsaved", "checkpoint"),
    *("checkpoint_failed", "job_progress", "validation", "job_stalled", "job_diverged", "job_restarted"),
    *("job_given_up", "metric_unread", "resize", "tuner"),
)

EMITTERS: Mapping[str, Emitter] = {
    **dict.fromkeys(_OF_RESOURCE_MANAGER, Emitter.RESOURCE_MANAGER),
    **dict.fromkeys(_OF_APP_MASTER, Emitter.APP_MASTER),
}
"""Every known kind, with the only side that may emit it."""
