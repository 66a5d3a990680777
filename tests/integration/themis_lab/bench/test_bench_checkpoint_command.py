"""`themis bench checkpoint` against an HDFS in memory."""

import json

import pytest
from fake_webhdfs import Server

from themis_cli.main import main


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


def test_both_are_measured_and_nothing_is_left(server, capsys):
    assert main(["bench", "checkpoint", "--uri", server.uri("/w"), "--sizes", "2,1", "--rounds", "2", "--json"]) == 0
    output = capsys.readouterr()
    assert output.err.splitlines() == ["1 MB, 2 times", "2 MB, 2 times"]
    rows = json.loads(output.out)["rows"]
    assert [(row["size_mb"], row["rounds"]) for row in rows] == [(1, 2), (2, 2)]
    for row in rows:
        assert row["save_ratio"] == pytest.approx(row["save_s"] / row["put_s"])
        assert row["fetch_ratio"] == pytest.approx(row["fetch_s"] / row["get_s"])
        assert row["verify_s"] > 0
    assert server.hdfs.received_bytes > 2 * 2 * 3_000_000, "saves and puts of both sizes, twice"
    assert server.hdfs.files() == {}
    plain = [op for op, path in server.hdfs.requests if path.endswith("/plain")]
    assert plain.count("CREATE") == plain.count("OPEN") == 4


def test_the_table_has_a_line_a_size(server, capsys):
    assert main(["bench", "checkpoint", "--uri", server.uri("/w"), "--sizes", "1", "--rounds", "1"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "MB" and row.split()[0] == "1"
    assert len(row.split()) == 8


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--sizes", "10,x"], "--sizes does not parse"),
        (["--sizes", "0"], "--sizes must be"),
        (["--rounds", "0"], "--rounds must be"),
        (["--wait-s", "inf"], "--wait-s must be"),
        (["--uri", "/a/folder"], "not an HDFS URI"),
        (["--uri", "webhdfs://127.0.0.1:1/w", "--wait-s", "0.1", "--sizes", "1"], "unreachable"),
    ],
)
def test_invalid_options_exit_with_2(words, reason, capsys):
    assert main(["bench", "checkpoint", "--uri", "webhdfs://127.0.0.1:1/w", *words]) == 2
    output = capsys.readouterr()
    assert output.out == "" and reason in output.err and "Traceback" not in output.err
