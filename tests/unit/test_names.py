"""Test files have names of their own: pytest imports them by these, and of two alike it would lose one."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_no_two_test_files_share_a_name():
    counted = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, times in counted.items() if times > 1] == []
