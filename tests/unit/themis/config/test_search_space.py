"""Search spaces: samples in range, grids whole, streams independent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.config.loader import Section, fit
from themis.config.search_space import HyperParameters, Range, draw
from themis.errors import InputError


class Space(Section):
    space: dict[str, Range]


def sets(space: dict[str, Any], jobs: int | None = None, seed: int = 0, name: str = "a") -> tuple[HyperParameters, ...]:
    ranges = fit(Space, {"space": space}, "s").space
    return draw(ranges, jobs=jobs, seed=seed, app_name=name, source="s")


@given(low=st.floats(1e-9, 1e6), factor=st.floats(1.001, 1e6), seed=st.integers(0, 2**31 - 1))
def test_numbers_lie_in_their_range(low: float, factor: float, seed: int) -> None:
    high = low * factor
    for row in sets({"l": {"log_uniform": [low, high]}, "u": {"uniform": [low, high]}}, 5, seed):
        assert low <= row["l"] <= high  # type: ignore[operator]
        assert low <= row["u"] <= high  # type: ignore[operator]


def test_integers_reach_both_ends_and_choices_every_value() -> None:
    rows = sets({"i": {"integer": [1, 3]}, "c": {"choice": ["x", 2, True]}}, 200)
    assert {row["i"] for row in rows} == {1, 2, 3}
    assert {repr(row["c"]) for row in rows} == {"'x'", "2", "True"}


def test_log_uniform_is_even_over_the_decades() -> None:
    rows = sets({"l": {"log_uniform": [0.001, 1.0]}}, 3000)
    decades = [sum(low <= float(row["l"]) < 10 * low for row in rows) for low in (0.001, 0.01, 0.1)]
    assert all(900 < count < 1100 for count in decades)


def test_grids_are_crossed_the_last_one_fastest() -> None:
    rows = sets({"a": {"grid": [1, 2]}, "b": {"grid": ["x", "y", "z"]}})
    assert [(row["a"], row["b"]) for row in rows] == [(a, b) for a in (1, 2) for b in "xyz"]


def test_each_point_of_a_grid_is_sampled_equally_often() -> None:
    rows = sets({"a": {"grid": [1, 2]}, "u": {"uniform": [0, 1]}}, 6)
    assert [row["a"] for row in rows] == [1, 1, 1, 2, 2, 2]
    assert len({row["u"] for row in rows}) == 6
    assert len(sets({"a": {"grid": [1, 2]}, "u": {"uniform": [0, 1]}})) == 2


def test_another_hyper_parameter_or_more_jobs_leave_samples_as_they_were() -> None:
    few = sets({"u": {"uniform": [0, 1]}}, 3)
    more = sets({"v": {"uniform": [0, 1]}, "u": {"uniform": [0, 1]}}, 5)
    assert [row["u"] for row in few] == [row["u"] for row in more[:3]]
    assert [row["u"] for row in more] != [row["v"] for row in more]


def test_seed_and_app_name_change_the_samples() -> None:
    space = {"u": {"uniform": [0, 1]}}
    assert sets(space, 3) == sets(space, 3)
    assert sets(space, 3) != sets(space, 3, seed=1)
    assert sets(space, 3) != sets(space, 3, name="b")


@pytest.mark.parametrize(
    ("space", "jobs", "message"),
    [
        ({"a": {}}, 1, "exactly one of log_uniform"),
        ({"a": {"uniform": [0, 1], "grid": [1]}}, 1, "exactly one of log_uniform"),
        ({"a": {"unifrom": [0, 1]}}, 1, "did you mean 'uniform'"),
        ({"a": {"uniform": None}}, 1, "the range is empty"),
        ({"a": {"uniform": [1, 1]}}, 1, "below the second"),
        ({"a": {"uniform": [0]}}, 1, "space.a.uniform"),
        ({"a": {"uniform": [0, float("inf")]}}, 1, "space.a.uniform"),
        ({"a": {"log_uniform": [0, 1]}}, 1, "above 0"),
        ({"a": {"integer": [0.5, 2]}}, 1, "space.a.integer"),
        ({"a": {"choice": []}}, 1, "space.a.choice"),
        ({"a": {"grid": [1, 1]}}, None, "holds a value twice"),
        ({"a": {"uniform": [0, 1]}}, None, "jobs is missing"),
        ({"a": {"grid": [1, 2]}}, 4, "the grids have 2 points, not 4"),
        ({name: {"grid": list(range(1000))} for name in "abcd"}, None, "have 1000000000000 points"),
        ({"a": {"grid": [1, 2]}, "b": {"uniform": [0, 1]}}, 3, "make jobs a multiple of 2"),
    ],
)
def test_unsound_spaces_are_refused(space: dict[str, Any], jobs: int | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        sets(space, jobs)
    assert message in str(caught.value)
