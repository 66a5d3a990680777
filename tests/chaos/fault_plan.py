"""The plan of faults of a chaos run: drawn from a seed, so that the same seed gives the same plan."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

KILLS: Mapping[str, float] = {
    "kill resource manager": 0.2,
    "kill app master": 0.3,
    "kill task": 0.4,
    "kill auction worker": 0.1,
}
"""Processes that get SIGKILL, with their shares."""

OUTAGES: Mapping[str, tuple[float, float]] = {
    "stop resource manager": (1.0, 8.0),
    "stop app master": (1.0, 9.0),
    "full disk": (1.0, 6.0),
    "locked store": (1.0, 8.0),
    "clock step": (0.0, 0.0),
}
"""Outages, with the shortest and longest length in seconds. An app master that stands still for more than
`am_expiry_s` = 5 s is replaced, so both cases occur."""

KILLS_ON_YARN: Mapping[str, float] = {**KILLS, "kill node": 0.05}
OUTAGES_ON_YARN: Mapping[str, tuple[float, float]] = {**OUTAGES, "stop YARN": (2.0, 15.0)}

LONGEST_STEP_S = 7200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        pause_s: Seconds after the start of the fault before.
        kind: A key of KILLS or OUTAGES, or of those on YARN.
        pick: In [0, 1), the place of the victim among the processes of its kind, by their start.
        length_s: How long an outage lasts. 0 for kills.
        step_s: By how much the clock is set ahead, or back if negative. 0 for other kinds.
    """

    pause_s: float
    kind: str
    pick: float
    length_s: float = 0.0
    step_s: float = 0.0

    @property
    def is_kill(self) -> bool:
        return self.kind in KILLS_ON_YARN


def fault_plan(seed: int, kills: int, outages: int, mean_pause_s: float, *, on_yarn: bool = False) -> tuple[Fault, ...]:
    """The faults in order. Every kind of outage occurs equally often, or once more.

    Example: `fault_plan(1, 300, 60, 2.5)` takes 15 minutes on average, with 12 outages of each kind.
    """
    rng = random.Random(seed)
    shares, lengths = (KILLS_ON_YARN, OUTAGES_ON_YARN) if on_yarn else (KILLS, OUTAGES)
    order = rng.sample(list(lengths), len(lengths))
    kinds = rng.choices(list(shares), weights=list(shares.values()), k=kills)
    kinds += [order[place % len(order)] for place in range(outages)]
    rng.shuffle(kinds)
    return tuple(_fault(rng, kind, mean_pause_s) for kind in kinds)


def _fault(rng: random.Random, kind: str, mean_pause_s: float) -> Fault:
    # A fifth of the faults strike while the service still reels from the one before.
    pause_s = 0.0 if rng.random() < 0.2 else min(rng.expovariate(1 / mean_pause_s), 4 * mean_pause_s)
    length_s = rng.uniform(*OUTAGES_ON_YARN[kind]) if kind in OUTAGES_ON_YARN else 0.0
    step_s = rng.choice((-1, 1)) * LONGEST_STEP_S ** rng.random() if kind == "clock step" else 0.0
    return Fault(pause_s=pause_s, kind=kind, pick=rng.random(), length_s=length_s, step_s=step_s)
