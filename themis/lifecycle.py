"""Lifecycles of apps, jobs and leases as transition tables: which state may follow which.

`Lifecycle.check` checks a change of state. The diagrams in docs/reference/lifecycles.md are drawn from the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from themis.errors import InvariantError
from themis.values import Value

S = TypeVar("S", bound=StrEnum)


class AppState(StrEnum):
    """States of an app, in YARN's words, and PAUSED: nothing of it runs until its user resumes it."""

    SUBMITTED = "SUBMITTED"
    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"


WAITING = "WAITING"
"""What people see in place of the state of an app that takes part in rounds but holds no GPU (`shown_state`)."""


def shown_state(state: str, *, gpus: int, hosted: bool) -> str:
    """Return an app's state as shown to people.

    It is `WAITING` for an app that runs without a GPU, and for one that is accepted and waits for its first GPU without
    an app master (`hosted`).
    """
    takes_part = state == AppState.RUNNING or hosted
    return WAITING if takes_part and not gpus else str(state)


class JobState(StrEnum):
    """States of a job inside its app master."""

    WAITING = "WAITING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    CHECKPOINTING = "CHECKPOINTING"
    PHASE_DONE = "PHASE_DONE"
    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    KILLED = "KILLED"


class LeaseState(StrEnum):
    """States of a lease. GRANTED turns to itself on renewal.

    RESERVED: won, but the former holder is still giving the GPU back. EXPIRING: the holder was warned and is
    checkpointing.
    """

    RESERVED = "RESERVED"
    GRANTED = "GRANTED"
    EXPIRING = "EXPIRING"
    RELEASED = "RELEASED"
    REVOKED = "REVOKED"


class Lifecycle(Value, Generic[S], frozen=True):
    """A transition table: for each state, the states that may follow it."""

    name: str
    table: Mapping[S, tuple[S, ...]]

    def allows(self, old: S, new: S) -> bool:
        """Whether `new` may follow `old`."""
        return new in self.table.get(old, ())

    def check(self, old: S, new: S, subject: object) -> S:
        """Return `new` if it may follow `old`. Raises InvariantError, which names the subject, if not."""
        if not self.allows(old, new):
            raise InvariantError(f"{self.name} {subject} cannot go from {old} to {new}")
        return new

    def is_final(self, state: S) -> bool:
        """Whether nothing follows the state."""
        return not self.table.get(state, ())

    def to_mermaid(self) -> str:
        """The table as a Mermaid state diagram, for the documentation."""
        arrows = [f"    {old} --> {new}" for old, targets in self.table.items() for new in targets]
        ends = [f"    {state} --> [*]" for state in self.table if self.is_final(state)]
        first = next(iter(self.table))
        return "\n".join(["stateDiagram-v2", f"    [*] --> {first}", *arrows, *ends]) + "\n"


APP_LIFECYCLE: Lifecycle[AppState] = Lifecycle(
    "app",
    {
        AppState.SUBMITTED: (AppState.ACCEPTED, AppState.PAUSED, AppState.KILLED, AppState.FAILED),
        AppState.ACCEPTED: (AppState.RUNNING, AppState.ACCEPTED, AppState.PAUSED, AppState.KILLED, AppState.FAILED),
        AppState.RUNNING: (AppState.ACCEPTED, AppState.PAUSED, AppState.FINISHED, AppState.FAILED, AppState.KILLED),
        AppState.PAUSED: (AppState.ACCEPTED, AppState.KILLED),
        AppState.FINISHED: (),
        AppState.FAILED: (),
        AppState.KILLED: (),
    },
)

JOB_ENDS = (JobState.STOPPED, JobState.FAILED, JobState.KILLED)
"""How a job may end in every state, short of having done all of its work."""

JOB_LIFECYCLE: Lifecycle[JobState] = Lifecycle(
    "job",
    {
        JobState.WAITING: (JobState.STARTING, *JOB_ENDS),
        JobState.STARTING: (JobState.RUNNING, JobState.CHECKPOINTING, JobState.WAITING, JobState.PHASE_DONE, *JOB_ENDS),
        JobState.RUNNING: (JobState.CHECKPOINTING, JobState.PHASE_DONE, JobState.WAITING, *JOB_ENDS),
        JobState.CHECKPOINTING: (JobState.WAITING, JobState.PHASE_DONE, *JOB_ENDS),
        JobState.PHASE_DONE: (JobState.WAITING, JobState.FINISHED, *JOB_ENDS),
        JobState.FINISHED: (),
        JobState.STOPPED: (JobState.WAITING,),
        JobState.FAILED: (),
        JobState.KILLED: (),
    },
)

LEASE_LIFECYCLE: Lifecycle[LeaseState] = Lifecycle(
    "lease",
    {
        LeaseState.RESERVED: (LeaseState.GRANTED, LeaseState.RELEASED),
        LeaseState.GRANTED: (LeaseState.GRANTED, LeaseState.EXPIRING, LeaseState.RELEASED, LeaseState.REVOKED),
        LeaseState.EXPIRING: (LeaseState.RELEASED, LeaseState.REVOKED),
        LeaseState.RELEASED: (),
        LeaseState.REVOKED: (),
    },
)

LIFECYCLES: tuple[Lifecycle[AppState] | Lifecycle[JobState] | Lifecycle[LeaseState], ...] = (
    APP_LIFECYCLE,
    JOB_LIFECYCLE,
    LEASE_LIFECYCLE,
)
