"""A follower gives every line once, whatever happens to the file."""

from am.profiler import follower
from am.profiler.follower import LogFollower


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def test_a_missing_file_may_come_later(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    assert follow.poll() == []
    append(path, b"one\n")
    assert follow.poll() == [b"one"]
    assert follow.poll() == []
    follow.close()


def test_a_partial_last_line_waits_for_its_end(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"one\ntw")
    assert follow.poll() == [b"one"]
    assert follow.offset == 4
    append(path, b"o")
    assert follow.poll() == []
    append(path, b"\n\nthree")
    assert follow.poll() == [b"two", b""]
    assert follow.finish() == [b"three"]
    assert follow.finish() == []
    follow.close()


def test_a_truncated_file_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"one\ntwo\nthr")
    assert follow.poll() == [b"one", b"two"]
    path.write_bytes(b"new\n")
    assert follow.poll() == [b"new"]
    follow.close()


def test_a_rotated_file_is_read_to_its_end_first(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"one\n")
    assert follow.poll() == [b"one"]
    append(path, b"two\nlast")
    path.rename(tmp_path / "log.1")
    append(path, b"three\n")
    assert follow.poll() == [b"two", b"last", b"three"]
    append(path, b"four\n")
    assert follow.poll() == [b"four"]
    follow.close()


def test_a_deleted_file_is_followed_until_another_takes_its_place(tmp_path):
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"one\n")
    with path.open("ab") as writer:
        assert follow.poll() == [b"one"]
        path.unlink()
        writer.write(b"two\n")
    assert follow.poll() == [b"two"]
    append(path, b"three\n")
    assert follow.poll() == [b"three"]
    follow.close()


def test_it_goes_on_at_an_offset_and_after_closing(tmp_path):
    path = tmp_path / "log"
    append(path, b"one\ntwo\nthr")
    follow = LogFollower(path, offset=4)
    assert follow.poll() == [b"two"]
    again = LogFollower(path, offset=follow.offset)
    follow.close()
    append(path, b"ee\n")
    assert follow.poll() == [b"three"]
    assert again.poll() == [b"three"]
    follow.close()
    again.close()


def test_endless_lines_are_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(follower, "MAX_LINE_BYTES", 10)
    path = tmp_path / "log"
    follow = LogFollower(path)
    append(path, b"ok\n" + b"x" * 25)
    assert follow.poll() == [b"ok"]
    append(path, b"x" * 5)
    assert follow.poll() == []
    assert follow.finish() == []
    append(path, b"ok again\n" + b"y" * 11 + b"\nok\n")
    assert follow.poll()[-1] == b"ok"
    follow.close()


def test_a_large_backlog_comes_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(follower, "MAX_POLL_BYTES", 7)
    path = tmp_path / "log"
    append(path, b"".join(b"%d\n" % number for number in range(10)))
    follow = LogFollower(path)
    polls = [follow.poll() for _ in range(4)]
    assert max(len(lines) for lines in polls) <= 4
    assert b"".join(line for lines in polls for line in lines) == b"0123456789"
    follow.close()


def test_a_folder_in_its_place_is_no_crash(tmp_path):
    follow = LogFollower(tmp_path)
    assert follow.poll() == []
    follow.close()
