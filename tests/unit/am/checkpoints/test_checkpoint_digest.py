"""Checksums beside a transfer: the same as without, and no wait of the caller's for the piece that is being hashed."""

import hashlib
import os
import threading

import pytest

from am.checkpoints.digest import ConcurrentDigest


def test_digest_equals_checksum_of_all_pieces():
    pieces = [os.urandom(n) for n in (0, 1, 5000, 1 << 20)]
    with ConcurrentDigest() as digest:
        assert digest.hexdigest() == hashlib.sha256().hexdigest()
        for piece in pieces:
            digest.update(piece)
        assert digest.hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_go_back_removes_later_pieces():
    with ConcurrentDigest() as digest:
        digest.update(b"first part")
        state = digest.state()
        for _ in range(2):
            digest.update(b"half of the seco")
            digest.go_back(state)
        digest.update(b"second part")
        assert digest.hexdigest() == hashlib.sha256(b"first partsecond part").hexdigest()


class Slow:
    """Hashes when the test allows it."""

    def __init__(self):
        self.begun, self.go_on = threading.Event(), threading.Event()

    def update(self, piece):
        self.begun.set()
        assert self.go_on.wait(60)
        if not piece:
            raise ValueError("an empty piece")

    def hexdigest(self):
        return "done"


@pytest.fixture
def slow():
    return Slow()


def test_caller_waits_only_with_next_piece(slow):
    with ConcurrentDigest() as digest:
        digest._digest = slow
        digest.update(b"x")
        assert slow.begun.wait(60)
        threading.Timer(0.1, slow.go_on.set).start()
        digest.update(b"y")
        assert slow.go_on.is_set()
        assert digest.hexdigest() == "done"


def test_error_in_thread_is_raised_in_caller(slow):
    slow.go_on.set()
    with ConcurrentDigest() as digest:
        digest._digest = slow
        digest.update(b"")
        with pytest.raises(ValueError, match="empty piece"):
            digest.hexdigest()
