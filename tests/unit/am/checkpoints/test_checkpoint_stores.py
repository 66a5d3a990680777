"""What every checkpoint store has to do, over the folder, the memory and the HDFS adapter (on an HDFS in memory)."""

from pathlib import Path

import pytest
from checkpoint_store_cases import CheckpointStoreCases
from fake_webhdfs import Server

from am.checkpoints import open_store
from am.checkpoints.folder import FolderStore
from am.checkpoints.memory import MemoryStore


def flipped(content: bytes) -> bytes:
    return bytes([content[0] ^ 1]) + content[1:]


class TestFolder(CheckpointStoreCases):
    @pytest.fixture
    def store(self, tmp_path):
        return FolderStore(tmp_path / "root")

    def damage(self, store, saved, name):
        path = Path(saved.location) / name
        path.write_bytes(flipped(path.read_bytes()))


class TestMemory(CheckpointStoreCases):
    @pytest.fixture
    def store(self):
        return MemoryStore()

    def damage(self, store, saved, name):
        store.corrupt(saved.job_id, saved.iteration, name, b"x")


class TestHdfs(CheckpointStoreCases):
    @pytest.fixture
    def store(self):
        self.server = Server()
        yield open_store(self.server.uri())
        self.server.stop()

    def damage(self, store, saved, name):
        hdfs = self.server.hdfs
        path = f"/ck/{saved.job_id}/{saved.iteration:012d}/{name}"
        hdfs.put(path, flipped(hdfs.nodes[path].content))
