"""Numbers in the fields of traces."""

import pytest

from themis_lab.simulator.workloads.fields import number_of_field


@pytest.mark.parametrize(
    ("text", "number"),
    [("10", 10.0), (" 1.5 ", 1.5), ("1.", 1.0), (".5", 0.5), ("+2", 2.0), ("1e3", 1000.0), ("2.5E-1", 0.25)],
)
def test_numbers(text, number):
    assert number_of_field(text) == number


@pytest.mark.parametrize(
    "text", [None, "", " ", ".", "1_0", "1_0.5", "1e1_0", "\u0661", "-1", "nan", "inf", "1e999", "0x10", "1,5", "1 0"]
)
def test_invalid_numbers_give_none(text):
    assert number_of_field(text) is None
