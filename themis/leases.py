"""A lease: the exclusive use of one GPU by one app until a time."""

from __future__ import annotations

from dataclasses import dataclass

from themis.cluster import GpuId
from themis.lifecycle import LeaseState


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One GPU, one holder. While EXPIRING the holder must have given the GPU back by `expires_at_s` plus the grace."""

    lease_id: int
    gpu: GpuId
    app_id: str
    granted_at_s: float
    expires_at_s: float
    state: LeaseState = LeaseState.GRANTED
    renewals: int = 0
