"""A lease: the exclusive use of one GPU by one app until a time."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from themis.cluster import Allocation, GpuId
from themis.lifecycle import LeaseState
from themis.values import Value

SAME_TIME_S = 1e-6
"""Times this close count as equal. Arbiter, apps and the caller of a round must agree on its renewable leases.

Otherwise a round that finds none of them would be called again at once."""


def renewable_until_s(now_s: float, lead_s: float) -> float:
    """The time by which the leases end that are renewable in a round at `now_s`, `lead_s` seconds before their ends."""
    return now_s + lead_s + SAME_TIME_S


class Lease(Value, frozen=True, kw_only=True):
    """One GPU, one holder. While EXPIRING the holder must have given the GPU back by `expires_at_s` plus the grace.

    A lease with a `job_id` is bound: that job of the app runs on the GPU until it ends, and then the app gives the GPU
    back. The arbiter renews a bound lease whenever it is about to end, so its job is never preempted. Only the lease of
    a profiling run ends with its time.
    """

    lease_id: int
    gpu: GpuId
    app_id: str
    granted_at_s: float
    expires_at_s: float
    state: LeaseState = LeaseState.GRANTED
    renewals: int = 0
    job_id: str = ""


class LeaseChangeKind(StrEnum):
    """The kinds of lease changes, which are also the names of their events."""

    RESERVED = "lease_reserved"
    GRANTED = "lease_granted"
    RENEWED = "lease_renewed"
    EXPIRING = "lease_expiring"
    RELEASED = "lease_released"
    REVOKED = "lease_revoked"


class LeaseChange(Value, frozen=True, kw_only=True):
    """A lease as it is after a change, and why it changed. `reserved`: it ended before its GPU was ever given."""

    kind: LeaseChangeKind
    lease: Lease
    reason: str = ""
    round_id: int = 0
    reserved: bool = False


def allocation_of(leases: Iterable[Lease]) -> Allocation:
    """GPUs by machine of some leases."""
    return Allocation.of_gpus([lease.gpu for lease in leases])
