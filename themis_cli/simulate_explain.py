"""The rounds of one app for readers: one paragraph per round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from themis.rho import RhoDefinition
from themis_cli.simulate_progress import span
from themis_lab.simulator.explain import AppRound
from themis_lab.simulator.json_codec import plain
from themis_lab.simulator.metrics import Document


def explained(app: str, rounds: Sequence[AppRound]) -> Document:
    """The rounds as the key `explained` of a document."""
    return {"app": app, "rounds": [{**plain(each), "payment": each.payment} for each in rounds]}


def explained_lines(app: str, rounds: Sequence[AppRound]) -> Iterator[str]:
    """The rounds as text."""
    yield f"{app}: {len(rounds)} rounds"
    for each in rounds:
        yield ""
        yield from _round_lines(each)


def _round_lines(each: AppRound) -> Iterator[str]:
    yield f"round {each.round_id} at {span(each.now_s)} ({', '.join(each.reasons)})"
    # Policies that do not decide by rho do not ask for it.
    rho = f"rho {each.rho:.3f} ({RhoDefinition.THEMIS}), place {each.rank} of {each.apps}"
    yield (
        f"  reported {'no rho' if math.isnan(each.rho) else rho};"
        f" keeps {_machines(each.kept)}; renewable {_machines(each.renewable)};"
        f" could use {each.demand_gpus} more; {each.free_gpus} free"
    )
    if each.bid is not None:
        cut = f", {each.bid.rows_dropped} more left out" if each.bid.rows_dropped else ""
        yield (
            f"  bid: {each.bid.rows} rows{cut}; nothing is worth {each.bid.empty_value:.4g},"
            f" the best row {each.bid.best_value:.4g}"
        )
    if each.won:
        yield f"  won {_machines(each.won)}; keeps {each.share:.4f} of it, payment {each.payment:.4f}"
    if each.lease_end_s is not None:
        yield (
            f"  granted {_machines(each.granted)}; leftovers {_machines(each.leftovers)};"
            f" until {span(each.lease_end_s)}"
        )
    yield f"  no more: {'; '.join(each.why)}"
    for label, text in each.policy:
        yield f"  {label[:1].lower()}{label[1:]}: {text}"


def _machines(gpus: Mapping[str, int]) -> str:
    return " ".join(f"{machine}:{count}" for machine, count in gpus.items()) or "nothing"
