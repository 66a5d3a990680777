"""The lock of `yarn.storage`, on a fake HDFS: one holder at a time, and a dead holder's lock can be taken."""

import pytest
from fake_webhdfs import Server
from msgspec.structs import replace

from rm_plugin.engines import folder_lock
from rm_plugin.engines.folder_lock import FolderLock, LockHolder, LockLostError
from rm_plugin.engines.yarn_folder import HdfsFolder
from themis.errors import InputError, ThemisError
from themis.hadoop.webhdfs import open_webhdfs
from themis.hadoop.webhdfs_retry import RetryRule


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


class Process:
    """A ResourceManager that wants the lock. `meanwhile` runs in each of its waits."""

    def __init__(self, server, tmp_path, meanwhile=lambda: None, **holder):
        hdfs, folder = open_webhdfs(server.uri("/themis/resource-manager"), rule=RetryRule(deadline_s=0.1))
        self.waits = 0
        self.meanwhile = meanwhile
        self.holder = replace(LockHolder.this_process(tmp_path), **holder)
        self.lock = FolderLock(HdfsFolder(hdfs, folder), self.holder, sleep=self._sleep)

    def _sleep(self, seconds):
        self.waits += 1
        self.meanwhile()


def test_second_process_is_refused_while_the_first_renews(server, tmp_path):
    first = Process(server, tmp_path / "one")
    first.lock.acquire()
    second = Process(server, tmp_path / "other", first.lock.renew)
    with pytest.raises(InputError, match="another ResourceManager uses the same") as refused:
        second.lock.acquire()
    assert refused.value.exit_code == 2
    assert str(tmp_path / "one") in str(refused.value) and "themis rm stop" in str(refused.value)
    assert f"process {first.holder.pid} " in str(refused.value) and first.holder.host in str(refused.value)
    first.lock.renew()


def test_released_lock_is_free(server, tmp_path):
    first, second = Process(server, tmp_path), Process(server, tmp_path)
    first.lock.acquire()
    first.lock.release()
    second.lock.acquire()
    assert second.waits == 0


def test_lock_of_a_silent_holder_elsewhere_expires(server, tmp_path):
    Process(server, tmp_path, machine="another").lock.acquire()
    second = Process(server, tmp_path)
    second.lock.acquire()
    assert second.waits == folder_lock.EXPIRY_S / folder_lock.LOOK_S
    second.lock.renew()


@pytest.mark.parametrize("changes", [{"pid": 2**22 + 1}, {"started_s": 1.0}])
def test_lock_of_a_process_that_this_machine_does_not_run_is_free(server, tmp_path, changes):
    Process(server, tmp_path, **changes).lock.acquire()
    second = Process(server, tmp_path)
    second.lock.acquire()
    assert second.waits == 0


def test_holder_that_stood_still_learns_that_it_lost_the_lock(server, tmp_path):
    first, second = Process(server, tmp_path), Process(server, tmp_path)
    first.lock.acquire()
    second.lock.acquire()
    with pytest.raises(LockLostError, match="has taken the lock"):
        first.lock.renew()
    first.lock.release()
    second.lock.renew()


def test_only_one_of_two_processes_takes_an_expired_lock(server, tmp_path):
    Process(server, tmp_path, machine="another").lock.acquire()
    second, third = Process(server, tmp_path), Process(server, tmp_path)

    def third_is_faster():
        if second.waits == folder_lock.EXPIRY_S - 1:
            third.lock.acquire()
            second.meanwhile = third.lock.renew

    second.meanwhile = third_is_faster
    with pytest.raises(InputError, match="another ResourceManager"):
        second.lock.acquire()
    third.lock.renew()


def test_claim_that_comes_second_is_refused(server, tmp_path):
    """Both have seen that the lock is free."""
    first, second = Process(server, tmp_path), Process(server, tmp_path)
    first.lock.acquire()
    second.lock._claim(1)
    assert not second.lock.is_fresh()
    first.lock.renew()
    assert [path for path in server.hdfs.files() if "/." in path] == []


def test_renewal_while_hdfs_is_away_fails_without_loss(server, tmp_path):
    first = Process(server, tmp_path)
    first.lock.acquire()
    server.stop()
    with pytest.raises(ThemisError) as away:
        first.lock.renew()
    assert not isinstance(away.value, LockLostError)
    server.start()
    first.lock.renew()
