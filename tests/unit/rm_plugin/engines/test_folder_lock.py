"""The lock of `yarn.storage`, on a fake HDFS: one holder at a time, and a dead holder's lock can be taken."""

import asyncio
import threading

import pytest
from fake_webhdfs import Server
from msgspec.structs import replace

from rm_plugin.engines import folder_lock
from rm_plugin.engines.folder_lock import FolderLock, LockHolder, LockLostError
from rm_plugin.engines.yarn_folder import HdfsFolder
from themis.errors import InputError, ThemisError, UnreachableError
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

    async def _sleep(self, _seconds):
        self.waits += 1
        self.meanwhile()

    def acquire(self, **options):
        asyncio.run(self.lock.acquire(**options))


def test_second_process_is_refused_while_the_first_renews(server, tmp_path):
    first = Process(server, tmp_path / "one")
    first.acquire()
    second = Process(server, tmp_path / "other", first.lock.renew)
    with pytest.raises(InputError, match="another ResourceManager uses the same") as refused:
        second.acquire()
    assert refused.value.exit_code == 2
    assert str(tmp_path / "one") in str(refused.value) and "themis rm stop" in str(refused.value)
    assert f"process {first.holder.pid} " in str(refused.value) and first.holder.host in str(refused.value)
    first.lock.renew()


def test_released_lock_is_free(server, tmp_path):
    first, second = Process(server, tmp_path), Process(server, tmp_path)
    first.acquire()
    first.lock.release()
    second.acquire()
    assert second.waits == 0


def test_lock_of_a_silent_holder_elsewhere_expires(server, tmp_path):
    Process(server, tmp_path, machine="another").acquire()
    second = Process(server, tmp_path)
    second.acquire()
    assert second.waits == folder_lock.EXPIRY_S / folder_lock.LOOK_S
    second.lock.renew()


@pytest.mark.parametrize("changes", [{"pid": 2**22 + 1}, {"started_s": 1.0}])
def test_lock_of_a_process_that_this_machine_does_not_run_is_free(server, tmp_path, changes):
    Process(server, tmp_path, **changes).acquire()
    second = Process(server, tmp_path)
    second.acquire()
    assert second.waits == 0


def test_holder_that_stood_still_learns_that_it_lost_the_lock(server, tmp_path):
    first, second = Process(server, tmp_path), Process(server, tmp_path)
    first.acquire()
    second.acquire()
    with pytest.raises(LockLostError, match="has taken the lock"):
        first.lock.renew()
    first.lock.release()
    second.lock.renew()


def test_only_one_of_two_processes_takes_an_expired_lock(server, tmp_path):
    Process(server, tmp_path, machine="another").acquire()
    second, third = Process(server, tmp_path), Process(server, tmp_path)

    def third_is_faster():
        if second.waits == folder_lock.EXPIRY_S - 1:
            # Not in the loop of the second process.
            other = threading.Thread(target=third.acquire)
            other.start()
            other.join()
            second.meanwhile = third.lock.renew

    second.meanwhile = third_is_faster
    with pytest.raises(InputError, match="another ResourceManager"):
        second.acquire()
    third.lock.renew()


def test_claim_that_comes_second_is_refused(server, tmp_path):
    """Both have seen that the lock is free."""
    first, second = Process(server, tmp_path), Process(server, tmp_path)
    first.acquire()
    second.lock._claim(1)
    assert not second.lock.is_fresh()
    first.lock.renew()
    assert [path for path in server.hdfs.files() if "/." in path] == []


def test_renewal_while_hdfs_is_away_fails_without_loss(server, tmp_path):
    first = Process(server, tmp_path)
    first.acquire()
    server.stop()
    with pytest.raises(ThemisError) as away:
        first.lock.renew()
    assert not isinstance(away.value, LockLostError)
    server.start()
    first.lock.renew()


def test_standby_waits_while_the_holder_lives_and_takes_over_at_its_end(server, tmp_path):
    first = Process(server, tmp_path / "one")
    first.acquire()

    def live_for_a_while():
        if second.waits < 100:
            first.lock.renew()
        elif second.waits == 100:
            first.lock.release()

    second = Process(server, tmp_path / "other", live_for_a_while)
    shown = []
    second.acquire(wait=True, on_wait=shown.append)
    assert second.waits == 100
    assert shown == [str(first.holder)]
    second.lock.renew()


def test_waiting_for_a_folder_that_is_away_ends_when_it_is_back(server, tmp_path):
    server.stop()
    waiting = Process(server, tmp_path, server.start)
    waiting.acquire()
    assert waiting.waits == 1


def test_lock_that_was_not_renewed_for_long_is_not_fresh(server, tmp_path):
    now = [100.0]
    first = Process(server, tmp_path)
    first.lock._now_s = lambda: now[0]
    assert not first.lock.is_fresh()
    first.acquire()
    assert first.lock.is_fresh()
    now[0] += folder_lock.FRESH_S
    assert not first.lock.is_fresh()
    first.lock.renew()
    assert first.lock.is_fresh()
    assert folder_lock.FRESH_S < folder_lock.EXPIRY_S


def test_confirmation_of_a_fresh_lock_does_not_look(server, tmp_path):
    first = Process(server, tmp_path)
    first.acquire()
    server.stop()
    asyncio.run(first.lock.confirm())


def test_confirmation_of_a_lock_that_stood_still_renews_it_with_one_look_for_all_who_ask(server, tmp_path):
    now = [100.0]
    first = Process(server, tmp_path)
    first.lock._now_s = lambda: now[0]
    first.acquire()
    now[0] += folder_lock.EXPIRY_S
    looks, renew = [], first.lock.renew
    first.lock.renew = lambda: (looks.append(1), renew())

    async def all_at_once():
        await asyncio.gather(*(first.lock.confirm() for _ in range(20)))

    asyncio.run(all_at_once())
    assert first.lock.is_fresh()
    assert len(looks) == 1


def test_lost_lock_is_not_confirmed(server, tmp_path):
    now = [100.0]
    first, second = Process(server, tmp_path), Process(server, tmp_path)
    first.lock._now_s = lambda: now[0]
    first.acquire()
    second.acquire()
    now[0] += folder_lock.EXPIRY_S
    for _ in range(2):
        with pytest.raises(LockLostError, match="has taken the lock"):
            asyncio.run(first.lock.confirm())


def test_confirmation_that_stood_still_itself_looks_again(server, tmp_path):
    now = [100.0]
    first, second = Process(server, tmp_path), Process(server, tmp_path)
    first.lock._now_s = lambda: now[0]
    first.acquire()
    now[0] += folder_lock.FRESH_S
    renew = first.lock.renew

    def suspended_at_its_end():
        renew()
        first.lock.renew = renew
        now[0] += folder_lock.EXPIRY_S
        second.acquire()

    first.lock.renew = suspended_at_its_end
    with pytest.raises(LockLostError, match="has taken the lock"):
        asyncio.run(first.lock.confirm())


def test_lock_that_stood_still_is_not_confirmed_while_hdfs_is_away(server, tmp_path):
    now = [100.0]
    first = Process(server, tmp_path)
    first.lock._now_s = lambda: now[0]
    first.acquire()
    now[0] += folder_lock.FRESH_S
    server.stop()
    with pytest.raises(UnreachableError) as away:
        asyncio.run(first.lock.confirm())
    assert not isinstance(away.value, LockLostError)
    server.start()
    asyncio.run(first.lock.confirm())


def test_holder_knows_which_standbys_wait(server, tmp_path):
    now = [100.0]
    first = Process(server, tmp_path / "one")
    first.lock._now_s = lambda: now[0]
    first.acquire()

    seen = []

    def live_for_a_while():
        now[0] += 1
        first.lock.renew()
        seen.append(first.lock.standbys)
        if second.waits == 100:
            first.lock.release()

    second = Process(server, tmp_path / "other", live_for_a_while)
    second.acquire(wait=True)
    assert seen[-1] == (str(second.holder),) == seen[0]
    assert not any("standby" in path for path in server.hdfs.files())


def test_standby_that_died_is_forgotten(server, tmp_path):
    now = [100.0]
    first = Process(server, tmp_path / "one")
    first.lock._now_s = lambda: now[0]
    first.acquire()
    Process(server, tmp_path / "other").lock._join_the_waiting()
    first.lock.renew()
    assert len(first.lock.standbys) == 1
    now[0] += folder_lock.EXPIRY_S + 1
    first.lock.renew()
    assert first.lock.standbys == ()
    assert not any("standby" in path for path in server.hdfs.files())
