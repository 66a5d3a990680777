"""The archive of an app's logs, which the next attempt and the ResourceManager read."""

import asyncio

import pytest
from fake_webhdfs import Server

from am.log_archive import LogArchive, open_archive
from am.log_archive_hdfs import HdfsArchiveStore
from themis.errors import UnreachableError


class MemoryArchive:
    def __init__(self):
        self.content = None
        self.puts = 0
        self.trouble = None

    def put(self, content):
        if self.trouble is not None:
            raise self.trouble
        self.content = content
        self.puts += 1

    def get(self):
        if self.trouble is not None:
            raise self.trouble
        return self.content


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def keep(archive, times=1):
    async def kept():
        for _ in range(times):
            await archive.keep()

    asyncio.run(kept())


def test_only_its_owner_can_read_an_archive_on_hdfs():
    server = Server()
    archive = HdfsArchiveStore(server.uri("/run/app/logs.tar.gz"))
    archive.put(b"first")
    archive.put(b"second")
    assert (archive.get(), server.hdfs.permissions) == (b"second", {"/run/app/logs.tar.gz": "600"})
    server.stop()


def test_archive_restores_only_logs_histories_and_code(tmp_path):
    store = MemoryArchive()
    for name in (
        "jobs/j0/task-0.log",
        "jobs/j0/history.jsonl",
        "jobs/j1/task-12.log",
        "jobs/j0/scratch/big",
        "code.tar.gz",
        "jobs/j0/code/a.py",
        "other",
    ):
        write(tmp_path / "one", name, f"{name}\n")
    keep(LogArchive(tmp_path / "one", store))
    LogArchive(tmp_path / "two", store).restore()
    found = sorted(
        path.relative_to(tmp_path / "two").as_posix() for path in (tmp_path / "two").rglob("*") if path.is_file()
    )
    assert found == ["code.tar.gz", "jobs/j0/history.jsonl", "jobs/j0/task-0.log", "jobs/j1/task-12.log"]
    assert (tmp_path / "two/jobs/j0/task-0.log").read_text() == "jobs/j0/task-0.log\n"


def test_last_archive_has_no_code(tmp_path):
    store = MemoryArchive()
    archive = LogArchive(tmp_path / "one", store)
    write(tmp_path / "one", "jobs/j0/task-0.log", "a\n")
    write(tmp_path / "one", "code.tar.gz", "code")
    keep(archive)
    asyncio.run(archive.keep(last=True))
    # Until the app master has delivered the end of the app, it goes on archiving.
    keep(archive)
    LogArchive(tmp_path / "two", store).restore()
    assert (tmp_path / "two/jobs/j0/task-0.log").is_file()
    assert not (tmp_path / "two/code.tar.gz").exists()
    assert store.puts == 2


def test_archive_is_rewritten_only_after_new_log_lines(tmp_path):
    store = MemoryArchive()
    archive = LogArchive(tmp_path, store)
    write(tmp_path, "jobs/j0/task-0.log", "a\n")
    keep(archive, times=3)
    assert store.puts == 1
    write(tmp_path, "jobs/j0/task-0.log", "b\n")
    keep(archive)
    assert store.puts == 2


@pytest.mark.parametrize("trouble", [UnreachableError("HDFS is unavailable"), OSError("no space left")])
def test_failed_archive_is_written_next_time(tmp_path, trouble):
    store = MemoryArchive()
    archive = LogArchive(tmp_path, store)
    write(tmp_path, "jobs/j0/task-0.log", "a\n")
    store.trouble = trouble
    keep(archive)
    store.trouble = None
    keep(archive)
    assert store.puts == 1


def test_unreadable_or_missing_archive_is_ignored(tmp_path):
    store = MemoryArchive()
    LogArchive(tmp_path, store).restore()
    store.trouble = UnreachableError("HDFS is unavailable")
    LogArchive(tmp_path, store).restore()
    assert list(tmp_path.iterdir()) == []


def test_app_with_persistent_folder_has_no_archive(tmp_path):
    assert open_archive(tmp_path, str(tmp_path)) is None
