"""A follower gives every line once, whatever happens to the file."""

from capped_cases import capped_log

from am.profiler import follower
from am.profiler.follower import FileFollower, LogFollower, Part, Start


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def test_a_missing_file_may_come_later(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    assert follow.read() == b""
    append(path, b"one\n")
    assert follow.read() == b"one\n"
    assert follow.read() == b""
    follow.close()


def test_a_partial_last_line_waits_for_its_end(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"one\ntw")
    assert follow.read() == b"one\n"
    assert follow.offset == 4
    append(path, b"o")
    assert follow.read() == b""
    append(path, b"\n\nthree")
    assert follow.read() == b"two\n\n"
    assert follow.finish() == b"three\n"
    assert follow.finish() == b""
    follow.close()


def test_carriage_return_ends_line(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"Epoch 1/2\n\r 1/8\b\b\b\b")
    assert follow.read() == b"Epoch 1/2\n\r"
    append(path, b"\r 2/8\b\b\b\b\r 3/8")
    assert follow.read() == b" 1/8\b\b\b\b\r 2/8\b\b\b\b\r"
    append(path, b"\n")
    assert follow.read() == b" 3/8\n"
    follow.close()


def test_a_truncated_file_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"one\ntwo\nthr")
    assert follow.read() == b"one\ntwo\n"
    path.write_bytes(b"new\n")
    assert follow.read() == b"new\n"
    follow.close()


def test_truncated_file_that_regrew_is_detected(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"step 1\nstep 2\nste")
    assert follow.read() == b"step 1\nstep 2\n"
    path.write_bytes(b"step 8\nstep 9\nstep 10\nstep 11\n")
    assert follow.read() == b"step 8\nstep 9\nstep 10\nstep 11\n"
    append(path, b"step 12\n")
    assert follow.read() == b"step 12\n"
    follow.close()


def test_a_rotated_file_is_read_to_its_end_first(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"one\n")
    assert follow.read() == b"one\n"
    append(path, b"two\nlast")
    path.rename(tmp_path / "log.1")
    append(path, b"three\n")
    assert follow.read() == b"two\nlast\nthree\n"
    append(path, b"four\n")
    assert follow.read() == b"four\n"
    follow.close()


def test_a_deleted_file_is_followed_until_another_takes_its_place(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"one\n")
    with path.open("ab") as writer:
        assert follow.read() == b"one\n"
        path.unlink()
        writer.write(b"two\n")
    assert follow.read() == b"two\n"
    append(path, b"three\n")
    assert follow.read() == b"three\n"
    follow.close()


def test_reading_continues_at_offset_and_after_close(tmp_path):
    path = tmp_path / "log"
    append(path, b"one\ntwo\nthr")
    follow = LogFollower(path, offset=4)
    assert follow.read() == b"two\n"
    again = LogFollower(path, offset=follow.offset)
    follow.close()
    append(path, b"ee\n")
    assert follow.read() == b"three\n"
    assert again.read() == b"three\n"
    follow.close()
    again.close()


def test_endless_lines_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(follower, "MAX_LINE_BYTES", 10)
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"ok\n" + b"x" * 25)
    assert follow.read() == b"ok\n"
    append(path, b"x" * 5)
    assert follow.read() == b""
    assert follow.finish() == b""
    append(path, b"x" * 15)
    assert follow.read() == b""
    append(path, b"x" * 5 + b"\nok again\nok")
    assert follow.read() == b"ok again\n"
    follow.close()


def test_a_large_backlog_comes_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(follower, "MAX_POLL_BYTES", 7)
    path = tmp_path / "log"
    lines = b"".join(b"%d\n" % number for number in range(10))
    append(path, lines)
    follow = LogFollower(path)
    reads = [follow.read() for _ in range(4)]
    assert max(map(len, reads)) <= 8
    assert b"".join(reads) == lines
    assert not follow.behind
    append(path, lines)
    follow.read()
    assert follow.behind
    follow.close()


def test_folder_instead_of_file_reads_nothing(tmp_path):
    follow = LogFollower(tmp_path)
    assert follow.read() == b""
    follow.close()


def test_parts_have_start_kind(tmp_path):
    path = tmp_path / "file"
    follow = FileFollower(path)
    append(path, b"abc")
    assert follow.poll() == [Part(b"abc", Start.GOES_ON)]
    path.write_bytes(b"x")
    assert follow.poll() == [Part(b"x", Start.CUT)]
    path.rename(tmp_path / "old")
    append(path, b"yz")
    assert follow.poll() == [Part(b"", Start.REPLACED), Part(b"yz", Start.GOES_ON)]
    follow.close()


def test_reader_skips_the_hole_of_a_capped_log(tmp_path):
    path = tmp_path / "log"
    append(path, b"line 0\n")
    follow = LogFollower(path)
    assert follow.read() == b"line 0\n"
    kept = capped_log(path)
    # It begins with a whole line.
    assert follow.read().decode() == kept
    append(path, b"last\n")
    assert follow.read() == b"last\n"
    follow.close()


def test_new_reader_begins_with_the_first_whole_line_that_is_kept(tmp_path):
    kept = capped_log(tmp_path / "log")
    follow = LogFollower(tmp_path / "log")
    assert follow.read().decode() == kept
    follow.close()
