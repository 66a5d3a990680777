"""Explain an app's grants: every round of its life, from the records of the rounds alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from msgspec.structs import replace

from rm_plugin.arbiter.rounds import RoundResult
from rm_plugin.policies.port import ExplainingPolicy, Explanation
from rm_plugin.policies.registry import make_policy
from themis.leases import LeaseChange
from themis.values import Value
from themis_lab.simulator.record import BidRecord, RoundRecord
from themis_lab.simulator.workload import unknown_app

_MAX_NAMED = 4


class AppRound(Value, frozen=True, kw_only=True):
    """One round from the view of one app. GPUs are counts by machine.

    Attributes:
        rho: The rho that it reported.
        rank: Its rank among the apps that reported, from 1, worst rho first.
        apps: How many reported.
        asked: Whether it was asked to bid.
        won: Its win in the auction before payments; `granted` is after them, or by the policy's own rule.
        share: c_i, the share of its win that it keeps; None if it did not bid.
        payment: 1 - c_i.
        kept: GPUs that it keeps whatever the round decides.
        renewable: GPUs that it loses unless it wins them back.
        lease_end_s: The end of its last granted lease; None without a grant.
        why: Why it got no more GPUs, as text.
        policy: What the policy says of it after the round, as `submarine app show` prints it: labels and texts.
    """

    round_id: int
    now_s: float
    reasons: tuple[str, ...]
    rho: float
    rank: int
    apps: int
    demand_gpus: int
    free_gpus: int
    kept: Mapping[str, int]
    renewable: Mapping[str, int]
    asked: bool
    bid: BidRecord | None
    won: Mapping[str, int]
    share: float | None
    granted: Mapping[str, int]
    leftovers: Mapping[str, int]
    lease_end_s: float | None
    why: tuple[str, ...]
    policy: Explanation = ()

    OMITTED_AT_DEFAULT: ClassVar[Mapping[str, object]] = {"policy": ()}

    @property
    def payment(self) -> float | None:
        """The share of its win that it pays."""
        return None if self.share is None else 1.0 - self.share


class PolicyWords:
    """Collects what the policy of a run says of an app after each round. An observer of the run.

    Args:
        policy: The name of the policy.
        app: The app.
    """

    def __init__(self, policy: str, app: str) -> None:
        self._policy = make_policy(policy)
        self._app = app
        self.by_round: dict[int, Explanation] = {}

    def round_played(self, result: RoundResult) -> None:
        """Ask the policy, as the service does after a round."""
        memory = result.decision.memory
        if memory is not None and isinstance(self._policy, ExplainingPolicy):
            self.by_round[result.snapshot.round_id] = self._policy.explain(memory, self._app)

    def leases_changed(self, changes: Sequence[LeaseChange]) -> None:
        """Ignore lease changes: the policy decides in rounds."""


def explain(
    rounds: Iterable[RoundRecord], app: str, words: Mapping[int, Explanation] = MappingProxyType({})
) -> tuple[AppRound, ...]:
    """Return every round in which an app reported.

    Args:
        rounds: The rounds of a run.
        app: The app.
        words: What the policy says of it, by round.

    Raises:
        UnknownNameError: No round has this app.
    """
    seen: dict[str, None] = {}
    found = []
    for round_ in rounds:
        seen.update(dict.fromkeys(round_.rho))
        if app in round_.rho:
            found.append(replace(_app_round(round_, app), policy=words.get(round_.round_id, ())))
    if not found:
        raise unknown_app(app, seen)
    return tuple(found)


def _app_round(round_: RoundRecord, app: str) -> AppRound:
    granted, leftovers = round_.granted.get(app, {}), round_.leftovers.get(app, {})
    bid = round_.bids.get(app)
    return AppRound(
        round_id=round_.round_id,
        now_s=round_.now_s,
        reasons=round_.reasons,
        rho=round_.rho[app],
        rank=list(round_.rho).index(app) + 1,
        apps=len(round_.rho),
        demand_gpus=round_.demand_gpus.get(app, 0),
        free_gpus=_gpus(round_.free),
        kept=round_.kept.get(app, {}),
        renewable=round_.renewable.get(app, {}),
        asked=app in round_.asked,
        bid=bid,
        won=round_.proportional.get(app, {}),
        share=None if bid is None else round_.shares.get(app, 1.0),
        granted=granted,
        leftovers=leftovers,
        lease_end_s=round_.later_ends_s.get(app, round_.lease_end_s) if granted or leftovers else None,
        why=tuple(_why(round_, app)),
    )


def _why(round_: RoundRecord, app: str) -> Iterator[str]:
    """Return why the app got no more GPUs: first the auction, then the leftovers."""
    unmet = unmet_gpus(round_, app)
    if not round_.demand_gpus.get(app, 0):
        yield "it could use nothing more"
        return
    if not round_.free:
        yield "no GPU was free"
        return
    if round_.asked:
        yield from _in_the_auction(round_, app)
    if not unmet:
        yield "its demand was met"
        return
    if app in round_.waits:
        yield round_.waits[app]
        return
    served = _served(round_)
    left = _gpus(round_.free) - sum(served.values())
    if left:
        yield f"none of the {_count(left)} left serves any of its jobs better than what they have"
        return
    others = {name: gpus for name, gpus in served.items() if name != app}
    after = f" after {_named(others)}" if others else ""
    yield f"nothing was left{after} for the {_count(unmet)} that it could still use"


def _in_the_auction(round_: RoundRecord, app: str) -> Iterator[str]:
    if app not in round_.asked:
        yield f"not asked: {len(round_.asked)} of {len(round_.rho)} apps were, the worst that could use more"
        return
    bid, won = round_.bids.get(app), _gpus(round_.proportional.get(app, {}))
    if bid is None:
        yield "its bid was refused"
    elif not bid.rows:
        yield "no bundle of what was free is worth more to it than what it keeps"
    elif not won:
        winners = {name: _gpus(gpus) for name, gpus in round_.proportional.items() if name != app and gpus}
        no_winner = f"no app won: the auction ended {round_.status or 'without an outcome'}"
        yield f"lost against {_named(winners)}" if winners else no_winner
    taken = won - _gpus(round_.granted.get(app, {}))
    if taken > 0:
        yield f"payment took {_count(taken)}"


def unmet_gpus(round_: RoundRecord, app: str) -> int:
    """Return how many more GPUs the app could use after the round."""
    got = _gpus(round_.granted.get(app, {})) + _gpus(round_.leftovers.get(app, {}))
    return max(0, round_.demand_gpus.get(app, 0) - got)


def _served(round_: RoundRecord) -> dict[str, int]:
    """Return GPUs by app, with granted and leftover GPUs added."""
    apps = {**round_.granted, **round_.leftovers}
    return {name: _gpus(round_.granted.get(name, {})) + _gpus(round_.leftovers.get(name, {})) for name in apps}


def _named(served: Mapping[str, int]) -> str:
    """Return apps with their GPUs, most GPUs first; ties: by name."""
    ordered = sorted(served, key=lambda name: (-served[name], name))
    named = [f"{name} ({served[name]})" for name in ordered[:_MAX_NAMED]]
    more = len(ordered) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _gpus(by_machine: Mapping[str, int]) -> int:
    return sum(by_machine.values())


def _count(gpus: int) -> str:
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"
