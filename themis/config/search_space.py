"""Search spaces: how the hyper-parameters of a group's jobs are drawn.

Each hyper-parameter has one range. `grid` entries are crossed with each other; every other range is sampled. A sample
depends on the seed, the app's name, the hyper-parameter's name and the job's number only, so that adding a
hyper-parameter leaves the samples of the others as they were.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Mapping
from typing import Self

from pydantic import Field, FiniteFloat, StrictInt, model_validator

from themis.apps import HyperParameter
from themis.config.loader import Section
from themis.config.scalars import Scalar
from themis.errors import InputError

HyperParameters = dict[str, HyperParameter]

MAX_JOBS = 10_000
"""The most jobs of an app, checked before grids are crossed: three grids of a thousand values would fill the memory."""

_DIGITS = 6
"""Significant digits of a sampled number: readable, and blind to the last bits of the C library's log and exp."""


class Range(Section):
    """What one hyper-parameter may be: exactly one of the five keys.

    `log_uniform: [a, b]`: log-uniform on [a, b], 0 < a < b. `uniform: [a, b]`: uniform on [a, b]. `integer: [a, b]`:
    whole numbers, both ends included. `choice: [..]`: one of the values, each as likely. `grid: [..]`: every value,
    crossed with the other grids.
    """

    log_uniform: tuple[FiniteFloat, FiniteFloat] | None = None
    uniform: tuple[FiniteFloat, FiniteFloat] | None = None
    integer: tuple[StrictInt, StrictInt] | None = None
    choice: tuple[Scalar, ...] | None = Field(default=None, min_length=1)
    grid: tuple[Scalar, ...] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_sound_range(self) -> Self:
        given = self.model_fields_set
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}")
        if getattr(self, next(iter(given))) is None:
            raise ValueError("the range is empty")
        ends = self.log_uniform or self.uniform or self.integer
        if ends is not None and not ends[0] < ends[1]:
            raise ValueError("the first end of a range must be below the second")
        if self.log_uniform is not None and self.log_uniform[0] <= 0:
            raise ValueError("a log_uniform range must be above 0")
        if self.grid is not None and len(set(map(repr, self.grid))) < len(self.grid):
            raise ValueError("a grid holds a value twice")
        return self

    def sample(self, rng: random.Random) -> HyperParameter:
        """Draw one value; only `random()` is called, the one method whose sequence Python promises to keep."""
        u = rng.random()
        if self.log_uniform is not None:
            low, high = self.log_uniform
            return _rounded(math.exp(math.log(low) + u * (math.log(high) - math.log(low))), low, high)
        if self.uniform is not None:
            low, high = self.uniform
            return _rounded(low + u * (high - low), low, high)
        if self.integer is not None:
            first, last = self.integer
            return first + int(u * (last - first + 1))
        values = self.choice or self.grid or ()
        return values[int(u * len(values))]


def draw(
    space: Mapping[str, Range], *, jobs: int | None, seed: int, app_name: str, source: str, others: bool = False
) -> tuple[HyperParameters, ...]:
    """The hyper-parameters of every job, the last grid varying fastest.

    Args:
        space: The range of each hyper-parameter.
        jobs: How many sets. None: as many as the grids have points. A multiple of the grids' points samples each point
            as often.
        seed: The app's seed.
        app_name: The app's name; two apps with one seed draw different samples.
        source: The file, for errors.
        others: Whether the file has more ranges, which cannot be read.

    Raises:
        InputError: No number of jobs though nothing is a grid, or one that the grids' points do not divide.
    """
    grids = {name: entry.grid for name, entry in space.items() if entry.grid is not None}
    points = math.prod(len(values) for values in grids.values())
    count = _count(jobs, points, sampled=others or len(grids) < len(space), grids=bool(grids), source=source)
    crossed = [dict(zip(grids, values, strict=True)) for values in itertools.product(*grids.values())]
    streams = {name: _stream(seed, app_name, name) for name in space if name not in grids}
    sets: list[HyperParameters] = []
    for number in range(count):
        point = crossed[number * points // count]
        drawn = {name: space[name].sample(stream) for name, stream in streams.items()}
        sets.append({name: drawn[name] if name in drawn else point[name] for name in space})
    return tuple(sets)


def _count(jobs: int | None, points: int, *, sampled: bool, grids: bool, source: str) -> int:
    if points > MAX_JOBS:
        raise InputError(f"{source}: the grids have {points} points", remedy=f"an app has at most {MAX_JOBS} jobs")
    if jobs is None:
        if not grids:
            raise InputError(f"{source}: jobs is missing", remedy="say how many sets to draw from the search_space")
        return points
    if not sampled and jobs != points:
        raise InputError(
            f"{source}: the grids have {points} points, not {jobs}", remedy=f"leave jobs out or write jobs: {points}"
        )
    if jobs % points:
        raise InputError(
            f"{source}: {jobs} jobs cannot sample the {points} points of the grids equally often",
            remedy=f"make jobs a multiple of {points}",
        )
    return jobs


def _stream(seed: int, app_name: str, parameter: str) -> random.Random:
    # A hash of our own: Python's differs from process to process.
    text = "\0".join((str(seed), app_name, parameter))
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()))


def _rounded(value: float, low: float, high: float) -> float:
    return min(max(float(f"{value:.{_DIGITS}g}"), low), high)
