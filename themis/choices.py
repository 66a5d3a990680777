"""Named choices that the specification leaves open; each is a default in the configuration, never a constant."""

from __future__ import annotations

from enum import StrEnum


class LeaseEnds(StrEnum):
    """When leases end: all on one grid of the lease's length, or each after its own full length."""

    ALIGNED = "aligned"
    STAGGERED = "staggered"


class Rounding(StrEnum):
    """How a share c of k gangs becomes whole. There is no plain floor: it starves apps of few gangs."""

    PROBABILISTIC = "probabilistic"
    NEAREST = "nearest"
    BY_GPU = "by_gpu"


class EmptyBundle(StrEnum):
    """How winning nothing counts in the auction (themis.md, section 2)."""

    FINITE = "finite"
    LEXICOGRAPHIC = "lexicographic"


class BundleRule(StrEnum):
    """What a bundle is worth beyond its lease (themis.md, section 2; fairness-study.md, section 1)."""

    CONTINUATION = "continuation"
    IDLE_THEN_SHARE = "idle_then_share"
    LEXICOGRAPHIC = "lexicographic"
