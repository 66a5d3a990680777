"""Named choices that the paper leaves open. Each has a key in the configuration."""

from __future__ import annotations

from enum import StrEnum


class LeaseEnds(StrEnum):
    """When leases end: all on one grid of the lease's length, or each after its own full length.

    Example: leases of 600 s. One granted at 900 s ends at 1,200 s if aligned to a grid from 0 s, else at 1,500 s.
    """

    ALIGNED = "aligned"
    STAGGERED = "staggered"


class AppMastersStart(StrEnum):
    """When the app master of a new app starts: at once, or when a round first gives the app GPUs.

    Example: 1,000 apps are submitted to a full cluster. `at_submit` starts 1,000 processes, `at_grant` none: one agent
    host answers for all of them until a GPU is free.
    """

    AT_SUBMIT = "at_submit"
    AT_GRANT = "at_grant"


class RunAs(StrEnum):
    """As which system user an app master and its tasks run, with the engine `local`.

    Example: ann submits an app to a service of root. With `submitter` its tasks are processes of ann, with `service`
    they are processes of root.
    """

    SUBMITTER = "submitter"
    SERVICE = "service"


class Rounding(StrEnum):
    """How a share c of k gangs is rounded to whole gangs. Never down alone: that starves apps with few gangs.

    Example: c = 0.8 of three gangs of two GPUs, for jobs of one or two GPUs. `probabilistic` keeps three gangs with
    probability 0.4, else two; `nearest` keeps two; `by_gpu` keeps 5 GPUs with probability 0.8, else 4. `capped` does as
    `by_gpu`, but a winner never loses all: of one such gang with c = 0.2 it keeps one GPU.
    """

    PROBABILISTIC = "probabilistic"
    NEAREST = "nearest"
    BY_GPU = "by_gpu"
    CAPPED = "capped"


class Bidders(StrEnum):
    """Which apps bid in the auction of `themis`: the worst (1 - f) of them by one of two orders, or all.

    `worst_rho` is the paper's: the largest rho first. `pressed` goes by the due date, the app's end on the fluid fair
    cluster: the largest expected time over the time until the due date first, both from submission on.

    Example: f = 0.5; app a expects to take 2 h and is due after 1 h, b 9 h and 6 h, and b reports the larger rho. Then
    b bids under `worst_rho`, a under `pressed`, and both under `all`.
    """

    WORST_RHO = "worst_rho"
    PRESSED = "pressed"
    ALL = "all"


class BidValues(StrEnum):
    """What a bundle is worth in the auction of `themis`, from the app's expected time t with it.

    `rho` is the paper's, 1/rho: the auction maximizes the product of t_ideal / t. `seconds`: it maximizes the sum of
    the seconds saved. `slack`: the product of the slacks, due date minus expected end; late apps count by seconds.

    Example: leases of 600 s; a bundle takes an app from t = 2,400 s to 1,800 s, and it is due after 3,000 s. Its value
    grows by a factor of 2400/1800 = 1.33 under `rho`, exp(600/600) = 2.72 under `seconds`, and under `slack` by 1.62,
    about 1200/600.
    """

    RHO = "rho"
    SECONDS = "seconds"
    SLACK = "slack"


class LeftoverOrder(StrEnum):
    """Who gets the GPUs that the auction of `themis` leaves.

    `random` is the paper's: apps that did not bid come first, in random order, one job per turn. `need` serves whole
    apps, the largest rho first, and `shortest` whole apps, the least work left first.
    """

    RANDOM = "random"
    NEED = "need"
    SHORTEST = "shortest"


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


class LateOrder(StrEnum):
    """Which jobs AlloX+ starts first of those that have waited longer than its time-out.

    Example: a job of 100 s came at 0 s and one of 5 s at 10 s; both are late. `shortest` starts the second one first,
    as the authors' simulator does: under overload the first may never start. `oldest` starts the first one first.
    """

    SHORTEST = "shortest"
    OLDEST = "oldest"


class GangPlacement(StrEnum):
    """How the policies without an auction place gangs, for an ablation of the paper's baselines.

    `best_fit` renews leases in place and takes the fastest place. `blind` takes GPUs at random, and renews no lease.
    """

    BEST_FIT = "best_fit"
    BLIND = "blind"


class BundleRule(StrEnum):
    """How a bid values the time after the lease (docs/decisions/0003-continuation-rule.md).

    Example: leases of 600 s, T = 1000 s on the fair share. A bundle with T = 2000 s counts 1300 s under `continuation`
    (600 s, then 70 % of the work on the share), and 2000 s under the others. The empty bundle counts 600 + 1000 = 1600
    s, and never ends under `lexicographic`.
    """

    CONTINUATION = "continuation"
    IDLE_THEN_SHARE = "idle_then_share"
    LEXICOGRAPHIC = "lexicographic"
