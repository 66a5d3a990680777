"""Medians of durations that were cut short in part, against hand-worked ones and the plain median."""

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.durations import median_with_cuts

LENGTHS = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=12)


@given(LENGTHS)
def test_without_cuts_it_is_the_median(lengths):
    assert median_with_cuts([(length, True) for length in lengths]) == pytest.approx(median(lengths))


@pytest.mark.parametrize(
    ("whole", "cut", "expected"),
    [
        # Three of four are longer than 5, by an unknown time.
        ([5.0], [17.0, 12.0, 16.0], 17.0),
        # Kaplan and Meier: 3/4 go on past 1, then 3/8 past 3.
        ([1.0, 3.0, 4.0], [2.0], 3.0),
        # What was cut before anything ended says nothing.
        ([5.0, 7.0, 9.0], [1.0, 2.0], 7.0),
        # As long as a whole one: it went on.
        ([5.0], [5.0], 5.0),
        ([2.0, 4.0], [1.0], 3.0),
        ([], [3.0, 2.0], 3.0),
        # Half continue after 5, and the end after 60 is unknown.
        ([5.0], [60.0], 32.5),
    ],
)
def test_a_cut_one_counts_as_longer(whole, cut, expected):
    durations = [(length, True) for length in whole] + [(length, False) for length in cut]
    assert median_with_cuts(durations) == expected
    assert median_with_cuts(reversed(durations)) == expected


@given(LENGTHS, LENGTHS)
def test_cuts_never_shorten_it(whole, cut):
    durations = [(length, True) for length in whole]
    assert median_with_cuts([*durations, *((length, False) for length in cut)]) >= median_with_cuts(durations) * (
        1 - 1e-12
    )


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.booleans()), min_size=1, max_size=12))
def test_a_cut_duration_does_not_lower_the_median(durations):
    ended = median_with_cuts([(length, True) for length, _ in durations])
    assert median_with_cuts(durations) >= ended * (1 - 1e-12)


def test_no_durations_have_no_median():
    assert median_with_cuts([]) is None
