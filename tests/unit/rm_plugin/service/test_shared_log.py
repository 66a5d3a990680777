"""The shared log: every process agrees on its records, former writers are refused, and lost answers do no harm."""

import pytest
from shared_folder_cases import MemoryFolder

from rm_plugin.engines.shared_folder import FileSystemFolder
from rm_plugin.service.shared_log import KEPT_CLAIMS, LogLostError, SharedLog
from rm_plugin.service.store import StoreError
from themis.errors import UnreachableError


class LossyFolder(MemoryFolder):
    """Does what it is asked to, but loses the answer to the next `lost` creations."""

    lost = 0

    def create(self, name, content):
        created = super().create(name, content)
        if self.lost:
            self.lost -= 1
            raise UnreachableError("no answer")
        return created


def begun(folder):
    """A log with a first snapshot, as a store makes it."""
    log = SharedLog(folder)
    assert log.claim().snapshot is None
    log.put_snapshot(b"begin", log.end)
    return log


def contents(folder):
    """What a standby reads."""
    return [content for _, content in SharedLog(folder).claim().contents]


@pytest.fixture(params=["memory", "files"])
def folder(request, tmp_path):
    return MemoryFolder() if request.param == "memory" else FileSystemFolder(tmp_path / "shared")


def test_a_standby_reads_all_that_was_written(folder):
    log = begun(folder)
    for content in (b"one", b"two"):
        log.append(content)
    loaded = SharedLog(folder).claim()
    assert loaded.snapshot == b"begin"
    assert [content for _, content in loaded.contents] == [b"one", b"two"]


def test_a_former_writer_is_refused_once_the_log_is_claimed(folder):
    former = begun(folder)
    former.append(b"one")
    SharedLog(folder).claim()
    for _ in range(2):
        with pytest.raises(LogLostError, match="claimed"):
            former.append(b"late")
    assert contents(folder) == [b"one"]


def test_a_former_writer_is_refused_after_many_snapshots(folder):
    former = begun(folder)
    former.append(b"one")
    later = SharedLog(folder)
    later.claim()
    for number in range(3):
        later.append(b"%d" % number)
        later.put_snapshot(b"all", later.end)
    with pytest.raises(LogLostError):
        former.append(b"late")
    assert contents(folder) == []


@pytest.mark.parametrize("undone", [[b"undone"], [b"undone", b"undone too"]])
def test_records_whose_answers_were_lost_are_void_for_every_reader(undone):
    folder = LossyFolder()
    log = begun(folder)
    for content in undone:
        folder.lost = 1
        with pytest.raises(StoreError, match="no answer"):
            log.append(content)
    log.append(b"done")
    assert contents(folder) == [b"done"]


def test_a_writer_that_lost_an_answer_before_the_claim_is_refused_after_a_clean_up():
    folder = LossyFolder()
    former = begun(folder)
    folder.lost = 1
    with pytest.raises(StoreError):
        former.append(b"perhaps")
    later = SharedLog(folder)
    assert [content for _, content in later.claim().contents] == [b"perhaps"]
    later.put_snapshot(b"all", later.append(b"more"))
    with pytest.raises(LogLostError):
        former.append(b"late")


def test_a_change_that_was_given_up_after_its_record_is_void(folder):
    log = begun(folder)
    log.forgo(log.append(b"undone"))
    log.append(b"done")
    assert contents(folder) == [b"done"]


def test_a_snapshot_replaces_the_records_before_it(folder):
    log = begun(folder)
    for number in range(5):
        position = log.append(b"%d" % number)
    log.put_snapshot(b"five", position)
    log.append(b"six")
    assert len([file for file in folder.list() if file.name.startswith("record")]) == 2
    loaded = SharedLog(folder).claim()
    assert loaded.snapshot == b"five"
    assert [content for _, content in loaded.contents] == [b"six"]


def test_files_of_old_claims_are_removed_in_the_end():
    folder = MemoryFolder()
    begun(folder)
    for _ in range(3 * KEPT_CLAIMS):
        log = SharedLog(folder)
        log.claim()
        log.put_snapshot(b"all", log.append(b"more"))
    assert len(folder.list()) < 2 * KEPT_CLAIMS + 10


def test_a_snapshot_that_vanishes_for_a_newer_one_is_read_again():
    class Slow(MemoryFolder):
        """The former writer writes a snapshot just before a snapshot is read."""

        before_read = staticmethod(lambda: None)

        def read(self, name):
            if name.startswith("snapshot"):
                act, self.before_read = self.before_read, lambda: None
                act()
            return super().read(name)

    folder = Slow()
    former = begun(folder)
    position = former.append(b"one")
    folder.before_read = lambda: former.put_snapshot(b"one and all", position)
    loaded = SharedLog(folder).claim()
    assert (loaded.snapshot, loaded.contents) == (b"one and all", ())


def test_a_record_that_is_faster_than_a_claim_counts():
    class Racing(MemoryFolder):
        """The former writer writes just before a file is created."""

        before_create = staticmethod(lambda: None)

        def create(self, name, content):
            act, self.before_create = self.before_create, lambda: None
            act()
            return super().create(name, content)

    folder = Racing()
    former = begun(folder)
    folder.before_create = lambda: former.append(b"just in time")
    later = SharedLog(folder)
    assert [content for _, content in later.claim().contents] == [b"just in time"]
    later.append(b"next")
    with pytest.raises(LogLostError):
        former.append(b"late")


@pytest.mark.parametrize("lacking", ["record-000000000002", "snapshot-000000000001"])
def test_a_missing_file_is_reported(folder, lacking):
    log = begun(folder)
    log.append(b"one")
    log.append(b"two")
    folder.delete(lacking)
    with pytest.raises(StoreError, match=r"missing|no snapshot"):
        SharedLog(folder).claim()


def test_a_damaged_record_is_reported(folder):
    log = begun(folder)
    log.append(b"one")
    folder.delete("record-000000000002")
    folder.create("record-000000000002", b"\x00")
    with pytest.raises(StoreError, match="record 2 of the shared state is damaged"):
        SharedLog(folder).claim()
