"""Whether needs can each have something of their own."""

import operator

import pytest

from themis_lab.audit.matching import all_served


@pytest.mark.parametrize(
    ("needs", "means", "served"),
    [
        ([], [], True),
        ([1], [], False),
        ([1, 1], [1, 1, 2], True),
        ([1, 1], [1, 2], False),
        # The first must make way for the second, and the second for the third.
        ([3, 2, 1], [1, 2, 3], True),
        ([2, 1, 1], [1, 2, 3], False),
    ],
)
def test_each_need_has_means_of_its_own(needs, means, served):
    assert all_served(needs, means, operator.ge) is served
