"""The cases of every checkpoint store on a secure HDFS; `test_kerberos.py` runs them in a process that logs in."""

import uuid

import pytest
from checkpoint_store_cases import CheckpointStoreCases

from am.checkpoints import open_store
from themis.hadoop.webhdfs import open_webhdfs


class TestSecureStore(CheckpointStoreCases):
    @pytest.fixture
    def store(self):
        return open_store(f"hdfs:///user/themis/{uuid.uuid4().hex}")

    def damage(self, store, saved, name):
        hdfs, path = open_webhdfs(f"{saved.location}/{name}")
        content = hdfs.read_whole(path)
        hdfs.create(path, lambda: bytes([content[0] ^ 1]) + content[1:])
