"""Garbage collections are rare within a block, and as before after it."""

import gc

import pytest

from themis.garbage import few_collections


def test_collections_are_rare_until_the_block_ends_also_by_an_error():
    usual = gc.get_threshold()
    with pytest.raises(RuntimeError), few_collections(123_456):
        assert gc.get_threshold() == (123_456, *usual[1:])
        raise RuntimeError("a defect")
    assert gc.get_threshold() == usual
