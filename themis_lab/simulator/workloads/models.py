"""The paper's models (table 4): their shares, iteration times, and S by level."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

from tf_jobs.tables_reader import read_speeds
from themis.apps import Slowdown
from themis.errors import InputError, UnknownNameError
from themis.sums import sum_in_order
from themis.values import Value

DATA = Path(__file__).parent / "data"

CATEGORY_SHARES: Mapping[str, float] = {"cv": 0.1, "nlp": 0.6, "speech": 0.3}
"""Share of the apps by kind of model (table 4). The models of a kind are equally likely."""

STRICT_FROM = 2.0
"""A model is network-intensive if it runs at least this many times slower across the machines of a rack."""


class Model(Value, frozen=True, kw_only=True):
    """A model of the paper's mix. `themis_lab/simulator/workloads/data/models.csv` gives the reason for `measured_as`.

    Attributes:
        measured_as: Its row in `tf_jobs/tables/slowdown.csv`.
        basis: `measured`, `stand-in` for another model with a reason, or `assumed`.
        serial_iteration_s: Seconds per iteration on one GPU.
    """

    name: str
    category: str
    measured_as: str
    basis: str
    reason: str
    serial_iteration_s: float
    slowdown: Slowdown

    @property
    def strict(self) -> bool:
        """Whether the model is network-intensive, and so strict about its placement."""
        return self.slowdown.rack >= STRICT_FROM


@cache
def read_models() -> Mapping[str, Model]:
    """Return all models by name, in the order of the paper's table."""
    speeds = read_speeds()
    models = {}
    with (DATA / "models.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            speed = speeds[row["measured_as"]]
            models[row["model"]] = Model(
                name=row["model"],
                category=row["category"],
                measured_as=row["measured_as"],
                basis=row["basis"],
                reason=row["reason"],
                serial_iteration_s=speed.serial_iteration_time_s,
                slowdown=Slowdown(**speed.slowdown),
            )
    return models


def model_named(name: str) -> Model:
    """Return the model of this name. Raises UnknownNameError, which names the nearest."""
    models = read_models()
    if name not in models:
        raise UnknownNameError("model", name, models)
    return models[name]


def draw_models(count: int, rng: Random, network_intensive: float | None = None) -> tuple[Model, ...]:
    """Draw a model for each of `count` apps.

    Args:
        count: The number of apps.
        rng: The random generator.
        network_intensive: None for the paper's mix, rounded to whole apps. Otherwise the share of apps, 0 to 1, with
            strict models. With the same `rng`, an app that is strict at one share has the same strict model at every
            larger share.

    Raises:
        InputError: The share is not from 0 to 1.
    """
    if network_intensive is None:
        return _draw_mix(count, rng)
    if not 0.0 <= network_intensive <= 1.0:
        raise InputError("the share of network-intensive apps must lie in 0 to 1", value=network_intensive)
    models = list(read_models().values())
    strict = [rng.choice([model for model in models if model.strict]) for _ in range(count)]
    other = [rng.choice([model for model in models if not model.strict]) for _ in range(count)]
    order = rng.sample(range(count), count)
    wanted = set(order[: round(network_intensive * count)])
    return tuple(strict[app] if app in wanted else other[app] for app in range(count))


def _draw_mix(count: int, rng: Random) -> tuple[Model, ...]:
    by_category = {kind: [m for m in read_models().values() if m.category == kind] for kind in CATEGORY_SHARES}
    drawn = [rng.choice(by_category[kind]) for kind in shared_out(CATEGORY_SHARES, count)]
    rng.shuffle(drawn)
    return tuple(drawn)


def shared_out(shares: Mapping[str, float], count: int) -> Sequence[str]:
    """Return `count` names in proportion to their shares, by the method of largest remainders."""
    exact = {name: share * count / sum_in_order(shares.values()) for name, share in shares.items()}
    whole = {name: int(part) for name, part in exact.items()}
    by_rest = sorted(exact, key=lambda name: whole[name] - exact[name])
    for name in by_rest[: count - sum(whole.values())]:
        whole[name] += 1
    return [name for name, times in whole.items() for _ in range(times)]
