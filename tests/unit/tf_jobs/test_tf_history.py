"""A job's history: whole lines, and training that goes on while the disk is full."""

import json

from tf_jobs import history as history_module
from tf_jobs.history import HISTORY_NAME, History


def test_event_is_one_line_without_unknown_facts(tmp_path):
    History(tmp_path, 3).append("start", from_iteration=7, loss=None)
    (line,) = (tmp_path / HISTORY_NAME).read_text().splitlines()
    assert {key: value for key, value in json.loads(line).items() if key != "time_s"} == {
        "incarnation": 3,
        "event": "start",
        "from_iteration": 7,
    }


def test_full_disk_takes_no_line_and_stops_nothing(tmp_path):
    (tmp_path / HISTORY_NAME).symlink_to("/dev/full")
    History(tmp_path, 1).append("start", from_iteration=0)


def test_line_that_the_disk_takes_in_part_is_cut_off(tmp_path, monkeypatch):
    history = History(tmp_path, 1)
    history.append("start", from_iteration=0)
    write = history_module.os.write
    with monkeypatch.context() as full:
        full.setattr(history_module.os, "write", lambda descriptor, content: write(descriptor, content[:5]))
        history.append("checkpoint", iteration=10)
    history.append("end", iteration=20)
    lines = (tmp_path / HISTORY_NAME).read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["start", "end"]
