"""`themis checkpoints`: folders and an HDFS in memory."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from documents import block, commands, missing
from fake_webhdfs import Server

from am.checkpoints.folder import FolderStore
from am.checkpoints.uri import open_store
from themis_cli.main import main


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def folder(tmp_path):
    store = FolderStore(tmp_path / "ck")
    for job_id, iteration in (("a", 5), ("a", 10), ("b", 1)):
        (tmp_path / "f").write_bytes(os.urandom(1000))
        store.save(job_id, iteration, {"f": tmp_path / "f"}, {"seed": 1})
    return tmp_path / "ck"


def test_documented_commands_print_the_documented_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("curve", "state"):
        (tmp_path / name).write_text(name)
    FolderStore(tmp_path / "ckpt").save("replay", 20, {name: tmp_path / name for name in ("curve", "state")}, {})
    for command in commands(block("docs/explanation/checkpoints.md", "commands")):
        assert main(command.words[1:]) == 0
        output = capsys.readouterr()
        assert missing(command.shown, output.err + output.out) is None, command.line


def test_list_shows_every_checkpoint(folder, capsys):
    assert main(["checkpoints", "list", str(folder)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["JOB", "ITERATION", "FILES", "MB", "LOCATION"]
    assert [row[:4] for row in rows[1:]] == [["a", "5", "1", "0.0"], ["a", "10", "1", "0.0"], ["b", "1", "1", "0.0"]]


def test_list_prints_json(folder, capsys):
    assert main(["checkpoints", "list", f"file://{folder}", "--job", "b", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["job"], only["iteration"], only["size_bytes"], only["meta"]) == ("b", 1, 1000, {"seed": 1})
    assert only["files"]["f"]["size_bytes"] == 1000


def test_copy_to_hdfs_and_back(folder, server, tmp_path, capsys):
    assert main(["checkpoints", "copy", str(folder), server.uri("/x")]) == 0
    output = capsys.readouterr()
    assert output.out == "3 copied\n"
    assert output.err.splitlines()[0] == "1 of 3: a 5, 0.0 MB: copied"
    assert main(["checkpoints", "copy", server.uri("/x"), str(tmp_path / "back"), "--last", "1", "--verify"]) == 0
    assert capsys.readouterr().out == "2 copied\n"
    assert main(["checkpoints", "copy", server.uri("/x"), str(tmp_path / "back")]) == 0
    assert capsys.readouterr().out == "1 copied, 2 there already\n"
    assert FolderStore(tmp_path / "back").latest("a").files == FolderStore(folder).latest("a").files


def test_broken_checkpoints_exit_1(folder, tmp_path, capsys):
    (folder / "a" / f"{5:012d}" / "f").write_bytes(b"?" * 1000)
    assert main(["checkpoints", "copy", str(folder), str(tmp_path / "to")]) == 1
    output = capsys.readouterr()
    assert output.out == "2 copied, 1 broken at the source\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["list", "s3://x"], "unknown scheme"),
        (["list", "/nowhere/at/all"], "no job has checkpoints here"),
        (["list", "hdfs://h:1"], "not an HDFS URI"),
        (["list", "{folder}", "--job", "zz"], "unknown job"),
        (["copy", "{folder}", "to", "--last", "0"], "--last must be 1 or more"),
        (["list", "webhdfs://127.0.0.1:1/x", "--wait-s", "0.1"], "HDFS has been unreachable"),
        (["list", "webhdfs://127.0.0.1:1/x", "--wait-s", "-1"], "--wait-s must be"),
        (["list", "webhdfs://127.0.0.1:1/x", "--wait-s", "nan"], "--wait-s must be"),
    ],
)
def test_unusable_arguments_exit_2(folder, words, reason, capsys):
    assert main(["checkpoints", *(word.format(folder=folder) for word in words)]) == 2
    output = capsys.readouterr()
    assert output.out == "" and reason in output.err and "Traceback" not in output.err


def test_interrupted_copy_leaves_whole_checkpoints_and_resumes(folder, server, tmp_path, capsys):
    server.hdfs.fail("RENAME", exception="SafeModeException", times=1_000_000, match="/b/")
    command = [sys.executable, "-m", "themis_cli.main", "checkpoints", "copy", str(folder), server.uri("/x")]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "spool")}
    (tmp_path / "spool").mkdir()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=repository()
    ) as copying:
        deadline_s = time.monotonic() + 60
        while ("RENAME", "/x/b") not in {(op, path[:4]) for op, path in server.hdfs.requests}:
            assert time.monotonic() < deadline_s and copying.poll() is None
            time.sleep(0.01)
        copying.send_signal(signal.SIGINT)
        _, output = copying.communicate(timeout=60)
    assert copying.returncode == 3
    assert output.splitlines()[-1] == "themis: interrupted"
    assert not list((tmp_path / "spool").iterdir())
    assert not [path for path in server.hdfs.nodes if ".writing" in path]
    store = open_store(server.uri("/x"))
    assert [c.iteration for c in store.checkpoints("a")] == [5, 10] and store.checkpoints("b") == ()
    server.hdfs.faults.clear()
    assert main(["checkpoints", "copy", str(folder), server.uri("/x")]) == 0
    assert capsys.readouterr().out == "1 copied, 2 there already\n"


def repository():
    return Path(__file__).parents[3]
