"""Named choices that the paper leaves open. Each has a key in the configuration."""

from __future__ import annotations

from enum import StrEnum


class LeaseEnds(StrEnum):
    """When leases end: all on one grid of the lease's length, or each after its own full length.

    Example: leases of 600 s. One granted at 900 s ends at 1,200 s if aligned to a grid from 0 s, else at 1,500 s.
    """

    ALIGNED = "aligned"
    STAGGERED = "staggered"


class Rounding(StrEnum):
    """How a share c of k gangs is rounded to whole gangs. Never down alone: that starves apps with few gangs."""

    PROBABILISTIC = "probabilistic"
    NEAREST = "nearest"
    BY_GPU = "by_gpu"


class EmptyBundle(StrEnum):
    """How the empty bundle counts in the auction (docs/explanation/auction.md, A market file)."""

    FINITE = "finite"
    LEXICOGRAPHIC = "lexicographic"


class BundleRule(StrEnum):
    """How a bid values the time after the lease (docs/decisions/0003-continuation-rule.md)."""

    CONTINUATION = "continuation"
    IDLE_THEN_SHARE = "idle_then_share"
    LEXICOGRAPHIC = "lexicographic"
