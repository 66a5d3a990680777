"""Attempts of one app, one after the other, whose journal is closed at the end."""

import pytest
from attempt_cases import Attempt


@pytest.fixture
def attempt(tmp_path):
    made = []

    def make(**settings):
        if made:
            made[-1].journal.close()
        made.append(Attempt(tmp_path, **settings))
        return made[-1]

    yield make
    made[-1].journal.close()
