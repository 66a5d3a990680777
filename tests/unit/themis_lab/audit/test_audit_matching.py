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
def test_every_need_gets_its_own_resource(needs, means, served):
    assert all_served(needs, means, operator.ge) is served
