"""The profiling agent: a representative job runs a few mini-batches on every GPU type (Middleware'24, section 4.1).

A profile is a state machine. `advance` takes a profile and an event, and returns the next profile. No caller feeds it
yet: the policy `oef` takes speeds from the apps' demands, which the app masters' own profilers measure.

    requested --Started--> running on a type --Measured--> the next type, or done
    running   --Failed---> failed
    done      --Observed-> stale, if the observed rate differs from the prediction by more than 20 %
    failed, stale --Requested--> requested
"""

from __future__ import annotations

import math
import statistics
from enum import StrEnum

from themis.errors import InputError
from themis.values import Value

WARM_UP_BATCHES = 3
"""Mini-batches that do not count: the first ones allocate memory and choose kernels."""

MEASURED_BATCHES = 10
"""Mini-batches whose median time counts."""

LARGEST_ERROR = 0.20
"""Relative difference of observed and predicted rate above which a profile is stale."""


class ProfileState(StrEnum):
    """What a profile waits for."""

    REQUESTED = "requested"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STALE = "stale"


class Profile(Value, frozen=True, kw_only=True):
    """The profile of one job type of a tenant.

    >>> Profile(state=ProfileState.RUNNING, types=("k80", "v100"), rates=(10.0,)).next_type
    'v100'

    Attributes:
        state: What it waits for.
        types: GPU types to measure, in this order.
        rates: Mini-batches per second on the first types, as far as measured; 0 if the job cannot run there.
        reason: Why it failed.
    """

    state: ProfileState
    types: tuple[str, ...]
    rates: tuple[float, ...] = ()
    reason: str = ""

    @property
    def next_type(self) -> str | None:
        """The type to run on next; None if every type is measured."""
        return self.types[len(self.rates)] if len(self.rates) < len(self.types) else None


class Requested(Value, frozen=True, kw_only=True):
    """A tenant asked for a profile, perhaps of other types than before."""

    types: tuple[str, ...]


class Started(Value, frozen=True, kw_only=True):
    """The representative job runs on the next type."""


class Measured(Value, frozen=True, kw_only=True):
    """Seconds of each mini-batch on the present type, the warm-up included; none if the job cannot run on it."""

    batch_s: tuple[float, ...]


class Failed(Value, frozen=True, kw_only=True):
    """The run ended without measurements, although the job should be able to run there."""

    reason: str


class Observed(Value, frozen=True, kw_only=True):
    """A job of this type ran on a GPU type at a rate."""

    gpu_type: str
    rate: float


Event = Requested | Started | Measured | Failed | Observed


def advance(profile: Profile, event: Event) -> Profile:
    """Return the profile after an event. An event that does not fit the state changes nothing.

    Raises:
        InputError: Too few mini-batches, or a time that is not above 0.
    """
    match event, profile.state:
        case Requested(types=types), (ProfileState.DONE | ProfileState.FAILED | ProfileState.STALE):
            return Profile(state=ProfileState.REQUESTED, types=types)
        case Started(), ProfileState.REQUESTED:
            return Profile(state=ProfileState.RUNNING, types=profile.types)
        case Measured(batch_s=batch_s), ProfileState.RUNNING:
            rates = (*profile.rates, _rate(batch_s))
            if len(rates) < len(profile.types):
                return Profile(state=ProfileState.RUNNING, types=profile.types, rates=rates)
            if not any(rates):
                return Profile(state=ProfileState.FAILED, types=profile.types, reason="it can run on no type")
            return Profile(state=ProfileState.DONE, types=profile.types, rates=rates)
        case Failed(reason=reason), (ProfileState.REQUESTED | ProfileState.RUNNING):
            return Profile(state=ProfileState.FAILED, types=profile.types, reason=reason)
        case Observed(gpu_type=gpu_type, rate=rate), ProfileState.DONE if gpu_type in profile.types:
            predicted = profile.rates[profile.types.index(gpu_type)]
            if abs(rate - predicted) > LARGEST_ERROR * predicted:
                return Profile(state=ProfileState.STALE, types=profile.types, rates=profile.rates)
    return profile


def requested(types: tuple[str, ...]) -> Profile:
    """A profile that nothing was measured for yet."""
    return Profile(state=ProfileState.REQUESTED, types=types)


def _rate(batch_s: tuple[float, ...]) -> float:
    """Mini-batches per second: one over the median time after the warm-up; 0 if the job cannot run on the type."""
    if not batch_s:
        return 0.0
    counted = batch_s[WARM_UP_BATCHES : WARM_UP_BATCHES + MEASURED_BATCHES]
    if len(counted) < MEASURED_BATCHES:
        raise InputError(
            "a profile has too few mini-batches",
            value=len(batch_s),
            remedy=f"run {WARM_UP_BATCHES} to warm up and {MEASURED_BATCHES} to measure",
        )
    if not all(math.isfinite(seconds) and seconds > 0 for seconds in counted):
        raise InputError("a mini-batch must take a finite time above 0 s", value=min(counted))
    return 1.0 / statistics.median(counted)
