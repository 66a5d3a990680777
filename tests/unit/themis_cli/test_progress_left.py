"""The forecast of the time left of a reproduction."""

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
def test_time_left_uses_forecast_first_then_measured_pace(share, spent_s, left_s):
    assert _left_s(100.0, share, spent_s) == pytest.approx(left_s)


def test_time_left_before_first_result_stays_near_forecast():
    assert _left_s(100.0, 0.0, 5.0) == pytest.approx(125.0)


def test_no_cells_have_no_time_left():
    assert _left_s(0.0, 1.0, 3.0) == 0.0
