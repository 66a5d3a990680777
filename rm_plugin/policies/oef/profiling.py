"""The profile of an app: a representative job runs on every GPU type in turn (Middleware'24, section 4.1).

A profile is a state machine. `advance` takes a profile and an event, and returns the next profile. `oef_profiles` feeds
it from the rounds, the same way in the simulator and in the live service.

    requested --Started--> running on the next type
    running   --Measured-> requested for the type after it, or done
    running   --Unmeasured-> requested for the same type again, MAX_RUNS times; then as if measured, but assumed
    requested, running --Failed--> failed
    done      --Observed-> stale, if the observed rate differs from the measured one by more than 20 %
    done, failed, stale --Requested--> requested
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from themis.values import Value

LARGEST_ERROR = 0.20
"""Relative difference of observed and measured rate above which a profile is stale."""

MAX_RUNS = 4
"""Runs on a type that may end without a measurement before its stated speed counts; our choice."""


class ProfileState(StrEnum):
    """What a profile waits for."""

    REQUESTED = "requested"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STALE = "stale"


class Profile(Value, frozen=True, kw_only=True):
    """The profile of one app.

    >>> Profile(state=ProfileState.REQUESTED, types=("k80", "v100"), rates=(10.0,)).next_type
    'v100'

    Attributes:
        state: What it waits for.
        types: GPU types to measure, in this order.
        rates: Throughput on the first types, as far as measured, in one unit (`in_unit_of`); 0 if the job cannot run
            there.
        reason: Why it failed.
        job_id: The representative job; empty before its first run, and after it ended before its profile.
        assumed: Types of which no run measured the speed. Their rate is what the app reported then.
        attempts: Runs on the next type that ended without a measurement.
        gpus: Of an app that is too short for runs: the most GPUs that it had or wanted at once. Other profiles, and
            their records, have no such number.
    """

    state: ProfileState
    types: tuple[str, ...]
    rates: tuple[float, ...] = ()
    reason: str = ""
    job_id: str = ""
    assumed: tuple[str, ...] = ()
    attempts: int = 0
    gpus: int | UnsetType = UNSET

    @property
    def next_type(self) -> str | None:
        """The type to run on next; None if every type is measured."""
        return self.types[len(self.rates)] if len(self.rates) < len(self.types) else None

    @property
    def measured(self) -> Mapping[str, float]:
        """The rate on each type that was measured."""
        rates = zip(self.types, self.rates, strict=False)
        return {name: rate for name, rate in rates if name not in self.assumed}

    @property
    def is_stated(self) -> bool:
        """Whether no run is made for it: the speeds that the app reports count."""
        return self.gpus is not UNSET

    @property
    def is_open(self) -> bool:
        """Whether a run on the next type is needed or under way."""
        return self.state in (ProfileState.REQUESTED, ProfileState.RUNNING)


Profiles = Mapping[str, Profile]
"""Profiles by app."""


class Requested(Value, frozen=True, kw_only=True):
    """The app needs a profile, perhaps of other types than before."""

    types: tuple[str, ...]


class Started(Value, frozen=True, kw_only=True):
    """The representative job has GPUs of the next type. The first one that starts is the representative."""

    job_id: str = ""


class Measured(Value, frozen=True, kw_only=True):
    """The throughput of the run on the present type; 0 if the job cannot run on it."""

    rate: float


class Unmeasured(Value, frozen=True, kw_only=True):
    """The run ended without a measurement. `rate` is what the app reports; `final` if there is no other run."""

    rate: float
    final: bool = False


class Failed(Value, frozen=True, kw_only=True):
    """The run lost its GPUs, or there is nothing to run on."""

    reason: str


class Observed(Value, frozen=True, kw_only=True):
    """Jobs of this type ran on a GPU type at a rate, in the unit of the profile."""

    gpu_type: str
    rate: float


Event = Requested | Started | Measured | Unmeasured | Failed | Observed


def advance(profile: Profile, event: Event) -> Profile:
    """Return the profile after an event. An event that does not fit the state changes nothing."""
    types = profile.types
    match event, profile.state:
        case Requested(types=wanted), (ProfileState.DONE | ProfileState.FAILED | ProfileState.STALE):
            return requested(wanted)
        case Started(job_id=job_id), ProfileState.REQUESTED:
            return replace(profile, state=ProfileState.RUNNING, job_id=profile.job_id or job_id)
        case Unmeasured(rate=rate, final=final), ProfileState.RUNNING:
            if not final and profile.attempts + 1 < MAX_RUNS:
                return replace(profile, state=ProfileState.REQUESTED, attempts=profile.attempts + 1)
            return _after_type(replace(profile, assumed=(*profile.assumed, types[len(profile.rates)])), rate)
        case Measured(rate=rate), ProfileState.RUNNING:
            return _after_type(profile, rate)
        case Failed(reason=reason), (ProfileState.REQUESTED | ProfileState.RUNNING):
            return replace(profile, state=ProfileState.FAILED, rates=(), assumed=(), reason=reason)
        case Observed(gpu_type=gpu_type, rate=rate), ProfileState.DONE if gpu_type in profile.measured:
            measured = profile.measured[gpu_type]
            if abs(rate - measured) > LARGEST_ERROR * measured:
                return replace(profile, state=ProfileState.STALE)
    return profile


def _after_type(profile: Profile, rate: float) -> Profile:
    """The profile after the rate on the present type is known."""
    rates = (*profile.rates, rate)
    if len(rates) < len(profile.types):
        return replace(profile, state=ProfileState.REQUESTED, rates=rates, attempts=0)
    if not any(rates):
        return replace(profile, state=ProfileState.FAILED, rates=(), assumed=(), reason="it can run on no type")
    return replace(profile, state=ProfileState.DONE, rates=rates, attempts=0)


def requested(types: tuple[str, ...]) -> Profile:
    """A profile that nothing was measured for yet."""
    return Profile(state=ProfileState.REQUESTED, types=types)


def in_unit_of(profile: Profile | None, rates: Mapping[str, float]) -> dict[str, float]:
    """Return reported rates in the unit of a profile: relative to a type that it measured, else to the first type.

    A job reports speeds in the unit of the type on which it was timed first. Another job may have another one, and so
    has the same job once it is timed on a type on which it ran earlier.

    >>> half = Profile(state=ProfileState.REQUESTED, types=("k80", "v100"), rates=(1.0,))
    >>> in_unit_of(half, {"k80": 5.0, "v100": 10.0})
    {'k80': 1.0, 'v100': 2.0}
    """
    known = {} if profile is None else profile.measured
    factors = [known[name] / rate for name, rate in rates.items() if rate > 0.0 and known.get(name, 0.0) > 0.0]
    factors += [1.0 / rate for rate in rates.values() if rate > 0.0]
    return {name: rate * factors[0] if factors else rate for name, rate in rates.items()}


def profiled_speeds(profile: Profile | None, reported: Sequence[float], types: Sequence[str]) -> tuple[float, ...]:
    """Throughput by type to compute shares from; empty for an app that waits for its profile.

    Args:
        profile: Its profile, if it has one.
        reported: What it reports, by type; 0 where it cannot run.
        types: The names of the types.
    """
    if profile is None or profile.is_open:
        return ()
    if profile.state is ProfileState.FAILED:
        return tuple(reported)
    rates = in_unit_of(profile, dict(zip(types, reported, strict=True)))
    known = {name: rates.get(name, 0.0) for name in profile.assumed} | dict(profile.measured)
    return tuple(known.get(name, 0.0) if speed else 0.0 for name, speed in rates.items())
