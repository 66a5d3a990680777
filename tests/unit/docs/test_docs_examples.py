"""How examples in documents are compared with what is printed, and brought up to date."""

import pytest
from documents import brought_up, whole

PRINTED = "of the run    themis\nmax rho        0.957\nmedian rho     0.929\n48 checks; 0.25 s, 47 MiB\n"


@pytest.mark.parametrize(
    "shown",
    [
        PRINTED.splitlines(),
        ["of the run themis", "..", "48 checks; 7.5 s, 460 MiB"],
        ["..", "max rho   0.957", ".."],
        ["of the .. themis", "max rho        0..", ".."],
    ],
)
def test_examples_may_be_shortened_and_differ_in_seconds(shown):
    assert whole(shown, PRINTED)


@pytest.mark.parametrize(
    "shown",
    [
        ["..", "max rho 1.015", ".."],
        ["of the run themis", "median rho 0.929", ".."],
        ["of the run themis", "max rho 0.957"],
        ["..", "50 checks; 0.25 s, 47 MiB"],
        ["median rho 0.929", "max rho 0.957"],
    ],
)
def test_different_figures_and_missing_lines_are_found(shown):
    assert not whole(shown, PRINTED)


def test_figures_are_brought_up_to_date_and_cuts_stay():
    shown = ["  of the run    themis", "max rho        1.015", "..", "50 .. 0.5 s, 47 MiB"]
    fresh = ["  of the run    themis", "max rho        0.957", "..", "48 .. 0.25 s, 47 MiB"]
    assert brought_up(shown, PRINTED) == fresh
    assert whole(fresh, PRINTED)


def test_an_example_that_prints_other_words_is_for_a_person():
    assert brought_up(["..", "min rho 1.015", ".."], PRINTED) is None
