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
    """How a share c of k gangs is rounded to whole gangs. Never down alone: that starves apps with few gangs.

    Example: c = 0.8 of three gangs of two GPUs, for jobs of one or two GPUs. `probabilistic` keeps three gangs with
    probability 0.4, else two; `nearest` keeps two; `by_gpu` keeps 5 GPUs with probability 0.8, else 4.
    """

    PROBABILISTIC = "probabilistic"
    NEAREST = "nearest"
    BY_GPU = "by_gpu"


class EmptyBundle(StrEnum):
    """How the empty bundle counts in the auction (docs/explanation/auction.md, A market file).

    `finite` needs a positive value of every empty bundle. `lexicographic` allows 0, of apps that would never end.
    Example of that: two free GPUs; apps a and b are worth 0 with nothing and 0.6 with one GPU, a is worth 2 with two.
    The number of apps of positive value counts first, so each wins one GPU.
    """

    FINITE = "finite"
    LEXICOGRAPHIC = "lexicographic"


class TenantOf(StrEnum):
    """What shares the cluster under policies that are fair among tenants: users, queues, or apps."""

    USER = "user"
    QUEUE = "queue"
    APP = "app"


class Placer(StrEnum):
    """Who places gangs under OEF and its baselines: OEF's placer, or the plain one that its paper compares it with.

    Example: jobs of one and of four GPUs, machines of two and of four free GPUs. `compact` places the large gang first,
    on the machine of four. `plain` takes the first free GPUs for one job after the other, and splits the large gang.
    """

    COMPACT = "compact"
    PLAIN = "plain"


class BundleRule(StrEnum):
    """How a bid values the time after the lease (docs/decisions/0003-continuation-rule.md).

    Example: leases of 600 s, T = 1000 s on the fair share. A bundle with T = 2000 s counts 1300 s under `continuation`
    (600 s, then 70 % of the work on the share), and 2000 s under the others. The empty bundle counts 600 + 1000 = 1600
    s, and never ends under `lexicographic`.
    """

    CONTINUATION = "continuation"
    IDLE_THEN_SHARE = "idle_then_share"
    LEXICOGRAPHIC = "lexicographic"
