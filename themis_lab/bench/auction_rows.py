"""Results of `bench auction`: a row per variant, and how our time grows with the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import linear_regression, median

from msgspec.structs import asdict, replace

from themis.values import Value
from themis_lab.bench.auction_plan import Variant
from themis_lab.bench.auction_timing import HighsAuction, OurAuction, Seconds, relative_difference

_MIN_S = 1e-6


class MarketFigures(Value, frozen=True, kw_only=True):
    """One market: its rows (and those that a cap left out), GPUs, seconds of each bid, and both auctions."""

    rows: int
    rows_dropped: int
    free_gpus: int
    asked_gpus: int
    bids: tuple[Seconds, ...]
    ours: OurAuction
    highs: HighsAuction | None

    @property
    def ratio(self) -> float | None:
        """HiGHS's time over ours. Returns None if HiGHS was left out."""
        return None if self.highs is None else self.highs.seconds.wall_s / self.ours.seconds.wall_s

    @property
    def process_ratio(self) -> float | None:
        """The same with CPU seconds, which depend less on other load of the machine."""
        # The process clock may not advance during such short work.
        ours_s = max(self.ours.seconds.process_s, _MIN_S)
        return None if self.highs is None else self.highs.seconds.process_s / ours_s


class ResultRow(Value, frozen=True, kw_only=True):
    """A variant's results; docs/reference/benchmarks.md explains the columns. None: not measured."""

    gpus: int
    machines: int
    bidders: int
    gangs: str
    cluster: str
    kind: str
    markets: int
    rows: float | None = None
    rows_dropped: float | None = None
    free_gpus: float | None = None
    asked_gpus: float | None = None
    ours_s: float | None = None
    ours_process_s: float | None = None
    highs_s: float | None = None
    highs_process_s: float | None = None
    ratio: float | None = None
    worst_ratio: float | None = None
    process_ratio: float | None = None
    worst_process_ratio: float | None = None
    objective_rel_diff: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    states: float | None = None
    fallbacks: int | None = None
    ours_unproven: int = 0
    highs_markets: int = 0
    highs_unproven: int = 0
    highs_sampled: bool = False
    highs_sampled_markets: int = 0
    highs_sampled_problems: int = 0
    bid_p50_ms: float | None = None
    bid_p95_ms: float | None = None
    bid_p50_process_ms: float | None = None
    bid_p95_process_ms: float | None = None

    def document(self) -> dict[str, object]:
        """The row for JSON."""
        return asdict(self)


class Growth(Value, frozen=True, kw_only=True):
    """Slope of log seconds over log rows, by least squares over the sizes of one kind of market."""

    gangs: str
    cluster: str
    kind: str
    sizes: tuple[int, ...]
    slope: float


def sum_up(variant: Variant, figures: Sequence[MarketFigures]) -> ResultRow:
    """The row of a variant; without markets only its name."""
    row = ResultRow(
        gpus=variant.size.gpus,
        machines=variant.size.machines,
        bidders=variant.size.bidders,
        gangs=str(variant.gangs),
        cluster=str(variant.cluster),
        kind=str(variant.kind),
        markets=len(figures),
    )
    if not figures:
        return row
    return _with_highs(_with_ours(_with_markets(row, figures), figures), figures)


def growths(rows: Sequence[ResultRow]) -> list[Growth]:
    """The growth of every kind of market that was measured at two sizes or more."""
    found = []
    for gangs, cluster, kind in sorted({(row.gangs, row.cluster, row.kind) for row in rows}):
        alike = [row for row in rows if (row.gangs, row.cluster, row.kind) == (gangs, cluster, kind)]
        points = [(row.gpus, math.log(row.rows), math.log(row.ours_s)) for row in alike if row.rows and row.ours_s]
        if len({rows for _, rows, _ in points}) < 2:
            continue
        slope = linear_regression([point[1] for point in points], [point[2] for point in points]).slope
        sizes = tuple(gpus for gpus, _, _ in points)
        found.append(Growth(gangs=gangs, cluster=cluster, kind=kind, sizes=sizes, slope=slope))
    return found


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` percent of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _with_markets(row: ResultRow, figures: Sequence[MarketFigures]) -> ResultRow:
    wall_s = [seconds.wall_s for each in figures for seconds in each.bids]
    process_s = [seconds.process_s for each in figures for seconds in each.bids]
    return replace(
        row,
        rows=median(each.rows for each in figures),
        rows_dropped=median(each.rows_dropped for each in figures),
        free_gpus=median(each.free_gpus for each in figures),
        asked_gpus=median(each.asked_gpus for each in figures),
        bid_p50_ms=_milliseconds(wall_s, 50),
        bid_p95_ms=_milliseconds(wall_s, 95),
        bid_p50_process_ms=_milliseconds(process_s, 50),
        bid_p95_process_ms=_milliseconds(process_s, 95),
    )


def _milliseconds(seconds: Sequence[float], percent: int) -> float | None:
    """A percentile in milliseconds. Returns None without values."""
    return 1e3 * percentile(seconds, percent) if seconds else None


def _with_ours(row: ResultRow, figures: Sequence[MarketFigures]) -> ResultRow:
    ours = [each.ours for each in figures]
    wall_s = [each.seconds.wall_s for each in ours]
    return replace(
        row,
        ours_s=median(wall_s),
        ours_process_s=median(each.seconds.process_s for each in ours),
        p50_ms=1e3 * percentile(wall_s, 50),
        p95_ms=1e3 * percentile(wall_s, 95),
        states=_median_of([each.states for each in ours]),
        fallbacks=_sum_of([each.fallbacks for each in ours]),
        ours_unproven=sum(not each.optimal for each in ours),
    )


def _with_highs(row: ResultRow, figures: Sequence[MarketFigures]) -> ResultRow:
    pairs = [(each.ours, each.highs) for each in figures if each.highs is not None]
    ratios = [each.ratio for each in figures if each.ratio is not None]
    process_ratios = [each.process_ratio for each in figures if each.process_ratio is not None]
    if not pairs:
        return row
    sampled = [highs.sampled for _, highs in pairs if highs.sampled is not None]
    differences = [relative_difference(ours.objectives, highs.objectives) for ours, highs in pairs]
    return replace(
        row,
        highs_s=median(highs.seconds.wall_s for _, highs in pairs),
        highs_process_s=median(highs.seconds.process_s for _, highs in pairs),
        ratio=median(ratios),
        worst_ratio=min(ratios),
        process_ratio=median(process_ratios),
        worst_process_ratio=min(process_ratios),
        objective_rel_diff=max((each for each in differences if each is not None), default=None),
        highs_markets=len(pairs),
        highs_unproven=sum(not highs.proven for _, highs in pairs),
        highs_sampled=bool(sampled),
        highs_sampled_markets=len(sampled),
        highs_sampled_problems=sum(sampled),
    )


def _median_of(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return median(known) if known else None


def _sum_of(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
