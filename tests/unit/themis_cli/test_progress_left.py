"""How long the rest of a reproduction is said to take."""

import pytest

from themis_cli.reproduce_progress import _left_s


@pytest.mark.parametrize(
    ("share", "spent_s", "left_s"),
    [
        (0.0, 0.0, 100.0),
        (0.5, 50.0, 50.0),
        # Twice as slow as foretold: as if 20 s more had been as foretold.
        (0.5, 100.0, 50.0 * 120 / 70),
        (0.8, 160.0, 20.0 * 180 / 100),
        (1.0, 60.0, 0.0),
        (1.0 + 2**-52, 60.0, 0.0),
    ],
    ids=["none", "as foretold", "twice as slow", "surer", "all", "a last bit more"],
)
def test_what_is_left_follows_the_forecast_first_and_then_this_machine(share, spent_s, left_s):
    assert _left_s(100.0, share, spent_s) == pytest.approx(left_s)


def test_a_start_without_anything_done_is_no_long_wait_yet():
    assert _left_s(100.0, 0.0, 5.0) == pytest.approx(125.0)


def test_nothing_is_left_of_nothing():
    assert _left_s(0.0, 1.0, 3.0) == 0.0
