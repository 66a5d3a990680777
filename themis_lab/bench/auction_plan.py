"""The plan of `bench auction`: sizes and variants, number of markets, solvers and time limits."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from themis.errors import InputError
from themis.values import Value
from themis_lab.bench.apps import ELASTIC_SHARE, GangMix
from themis_lab.bench.holdings import ClusterState
from themis_lab.bench.sizes import MarketSize


class HighsUse(StrEnum):
    """When HiGHS runs too: as far as affordable, completely on every auction, or never."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class RowKind(StrEnum):
    """Kinds of rows of the bids: gangs by level, or tables of GPUs by machine."""

    GANGS = "gangs"
    EXPLICIT = "explicit"


class Variant(Value, frozen=True, kw_only=True):
    """One line of the result: size, gangs, state of the cluster, kind of rows."""

    size: MarketSize
    gangs: GangMix
    cluster: ClusterState
    kind: RowKind

    def __str__(self) -> str:
        size = f"{self.size.gpus}/{self.size.machines}/{self.size.bidders}"
        return f"{size} {self.gangs} {self.cluster}{' explicit' if self.kind is RowKind.EXPLICIT else ''}"


class AuctionBenchPlan(Value, frozen=True, kw_only=True):
    """A whole benchmark run. Market k of every variant has the seed `seed + k`.

    `budget_s` roughly limits the run's seconds (None: no limit); `solver` is compared with HiGHS.

    Raises:
        InputError: A number out of range.
    """

    variants: Sequence[Variant]
    markets: int = 16
    seed: int = 0
    highs: HighsUse = HighsUse.AUTO
    budget_s: float | None = None
    solver: str = "exact"
    elastic_share: float = ELASTIC_SHARE

    def __post_init__(self) -> None:
        if self.markets < 1:
            raise InputError("--markets must be 1 or more", value=self.markets)
        if not 0.0 <= self.elastic_share <= 1.0:
            raise InputError("--elastic-share must lie between 0 and 1", value=self.elastic_share)
        if self.budget_s is not None and not self.budget_s > 0.0:
            raise InputError("--budget-s must be a number above 0", value=self.budget_s)


def variants_of(
    sizes: Sequence[MarketSize], gangs: Sequence[GangMix], clusters: Sequence[ClusterState], *, explicit: bool
) -> tuple[Variant, ...]:
    """Every combination, small sizes first. With `explicit`, each is repeated with explicit tables."""
    kinds = (RowKind.GANGS, RowKind.EXPLICIT) if explicit else (RowKind.GANGS,)
    return tuple(
        Variant(size=size, gangs=mix, cluster=state, kind=kind)
        for size in sorted(sizes, key=lambda size: size.gpus)
        for kind in kinds
        for mix in gangs
        for state in clusters
    )
