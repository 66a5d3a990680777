"""How long the rest of a reproduction is said to take."""

import pytest

from themis_cli.reproduce_progress import _text


@pytest.mark.parametrize(
    ("share", "left"), [(0.5, "60 s"), (1.0, "0 s"), (1.0 + 2**-52, "0 s")], ids=["half", "all", "a last bit more"]
)
def test_no_less_than_nothing_is_left(share, left):
    assert _text(3, 4, share, 60.0) == f"3 of 4 runs; about {left} left"


def test_nothing_is_foretold_before_anything_is_done():
    assert _text(0, 4, 0.0, 1.0) == "0 of 4 runs; none is far yet"
