"""A growing file keeps its newest bytes at their offsets, and returns the space of the others."""

import os
from pathlib import Path

import pytest
from capped_cases import MIB, used_bytes

from themis.capped_files import READ_MARGIN_BYTES, first_kept, give_back


@pytest.fixture
def log(tmp_path):
    """A file of 3 MiB, in which each byte is that of its MiB."""
    path = tmp_path / "log"
    path.write_bytes(b"1" * MIB + b"2" * MIB + b"3" * MIB)
    with path.open("r+b", buffering=0) as file:
        yield file


def test_file_within_its_cap_stays_as_it_is(log):
    assert give_back(log.fileno(), 3 * MIB) == 0
    assert first_kept(log.fileno(), 0) == 0


def test_newest_half_of_the_cap_stays_at_its_place(log):
    assert give_back(log.fileno(), 2 * MIB) == 0
    assert first_kept(log.fileno(), 0) == 2 * MIB
    assert used_bytes(log.name) == MIB
    log.seek(2 * MIB)
    assert log.read() == b"3" * MIB


def test_writer_that_appends_goes_on_at_the_end(log):
    with Path(log.name).open("ab") as writer:
        give_back(log.fileno(), 2 * MIB)
        writer.write(b"4")
    log.seek(3 * MIB)
    assert log.read() == b"4"


@pytest.mark.parametrize("read_to", [MIB, MIB + 5000])
def test_bytes_that_are_not_read_yet_stay(log, read_to):
    assert give_back(log.fileno(), 2 * MIB, read_to) == 0
    kept = first_kept(log.fileno(), 0)
    assert read_to - READ_MARGIN_BYTES - 4096 < kept <= read_to - READ_MARGIN_BYTES


def test_file_of_twice_its_cap_loses_unread_bytes(log):
    assert give_back(log.fileno(), MIB, 100) == 3 * MIB - MIB // 2 - 100
    assert first_kept(log.fileno(), 0) == 3 * MIB - MIB // 2


def test_file_of_which_nothing_is_read_stays_whole_up_to_twice_its_cap(log):
    assert give_back(log.fileno(), 2 * MIB, 0) == 0
    assert first_kept(log.fileno(), 0) == 0


def test_first_kept_byte_after_all_others_is_the_end(log):
    assert first_kept(log.fileno(), 3 * MIB) == 3 * MIB
    assert first_kept(log.fileno(), 9 * MIB) == 9 * MIB


def test_file_that_cannot_be_written_raises(log):
    with pytest.raises(OSError):
        give_back(os.open(log.name, os.O_RDONLY), MIB)
