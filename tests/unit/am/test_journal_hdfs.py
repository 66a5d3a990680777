"""The journal on HDFS: a living process loses no line, and a reader sees a prefix of the written lines."""

import threading
import time

import pytest
from fake_webhdfs import Server

from am.journal import JobRecord, Journal, JournalError
from am.journal_hdfs import HdfsJournal
from am.tuners.port import Observation, ObservationKind
from themis.hadoop.webhdfs import WebHdfs, open_webhdfs
from themis.hadoop.webhdfs_retry import RetryRule
from themis.lifecycle import JobState


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


def opened(server, *, deadline_s=60.0, **options):
    hdfs, folder = open_webhdfs(server.uri("/j"), rule=RetryRule(first_wait_s=0.01, deadline_s=deadline_s))
    return HdfsJournal(hdfs, folder, **{"flush_every_s": 0.01, "close_within_s": 30.0, **options})


def lines(first, end):
    return [f"{number}\n".encode() for number in range(first, end)]


def until(condition):
    deadline_s = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def read(server):
    journal = opened(server)
    journal.close()
    return journal.content()


def kept(hdfs):
    return b"".join(content for _, content in sorted(hdfs.files().items()))


def test_only_its_owner_can_read_a_journal(server):
    """Checkpoints lie in the folder above, which its users may read."""
    uri = server.uri("/run/app/journal")
    hdfs, folder = open_webhdfs(uri, rule=RetryRule(deadline_s=1.0))
    HdfsJournal(hdfs, folder).close()
    assert server.hdfs.permissions == {"/run/app/journal": "700"}


def test_journal_reads_back_whole(server):
    written = Journal(server.uri("/app/journal"))
    observation = Observation(kind=ObservationKind.PROGRESS, job_id="j0", iteration=3, loss=0.25)
    record = JobRecord(job_id="j0", state=JobState.RUNNING, incarnation=2, iteration=3)
    written.observation(observation)
    written.job(record)
    written.note("attempt", 1)
    written.close()
    again = Journal(server.uri("/app/journal"))
    again.close()
    assert again.content.observations == (observation,)
    assert again.content.jobs == {"j0": record}
    assert again.content.notes == {"attempt": 1}


def test_lines_stay_in_order_over_many_openings(server):
    assert read(server) == b""
    for attempt in range(4):
        journal = opened(server)
        assert journal.content() == b"".join(lines(0, 30 * attempt))
        for line in lines(30 * attempt, 30 * (attempt + 1)):
            journal.append(line)
            time.sleep(0.001)
        journal.close()
    assert read(server) == b"".join(lines(0, 120))


def test_lines_are_written_in_batches(server):
    journal = opened(server, flush_every_s=600.0)
    for line in lines(0, 1000):
        journal.append(line)
    journal.close()
    assert len([op for op, path in server.hdfs.requests if op == "CREATE" and not path.endswith("/base")]) <= 3
    assert read(server) == b"".join(lines(0, 1000))


def test_small_files_are_merged(server):
    journal = opened(server, flush_every_s=0.0, batches_per_epoch=5)
    for line in lines(0, 23):
        journal.append(line)
        until(lambda: not journal._pending)
        time.sleep(0.01)
    journal.close()
    assert len(server.hdfs.files()) <= 6
    assert read(server) == b"".join(lines(0, 23))


def test_append_neither_waits_nor_loses_lines_while_hdfs_is_unreachable(server):
    journal = opened(server)
    journal.append(b"before\n")
    until(lambda: b"before" in kept(server.hdfs))
    server.stop()
    begun_s = time.monotonic()
    for line in lines(0, 500):
        journal.append(line)
    assert time.monotonic() - begun_s < 10.0
    time.sleep(0.3)
    server.start()
    until(lambda: b"499\n" in kept(server.hdfs))
    journal.close()
    assert read(server) == b"before\n" + b"".join(lines(0, 500))


@pytest.mark.parametrize("fault", [{"lost_reply": True}, {"cut_after": 1}, {"exception": "SafeModeException"}])
def test_batch_sent_twice_is_stored_once(server, fault):
    journal = opened(server)
    server.hdfs.fail("CREATE", times=3, match="/00000000", **fault)
    journal.append(b"1\n")
    until(lambda: server.hdfs.faults[0].times == 0)
    journal.append(b"2\n")
    journal.close()
    assert read(server) == b"1\n2\n"


def test_torn_last_line_is_removed(server):
    journal = opened(server)
    journal.append(b"1\n")
    journal.close()
    (last,) = [path for path, content in server.hdfs.files().items() if content == b"1\n"]
    server.hdfs.put(last[:-1] + "1", b'2\n{"torn": ')
    assert read(server) == b"1\n2\n"
    assert read(server) == b"1\n2\n"


def test_damaged_middle_line_is_an_error(server):
    journal = opened(server)
    journal.append(b"not json\n")
    journal.append(b"{}\n")
    journal.close()
    with pytest.raises(JournalError, match="damaged in line 1"):
        Journal(server.uri("/j"))


def test_replaced_master_cannot_write_and_gets_an_error(server):
    old = opened(server, batches_per_epoch=3)
    old.append(b"1\n")
    until(lambda: b"1\n" in kept(server.hdfs))
    new = opened(server)
    assert new.content() == b"1\n"

    def reported():
        try:
            old.append(b"stray\n")
        except JournalError as error:
            return "taken the journal over" in str(error)
        return False

    until(reported)
    new.append(b"2\n")
    new.close()
    old.close()
    assert read(server) == b"1\n2\n"


def test_permanent_refusal_is_raised_at_next_line(server):
    journal = opened(server)
    server.hdfs.fail("CREATE", exception="DSQuotaExceededException", message="quota exceeded", times=99)
    journal.append(b"1\n")
    until(lambda: journal._failure is not None)
    with pytest.raises(JournalError, match="quota exceeded"):
        journal.append(b"2\n")
    journal.close()


def test_close_gives_up_at_deadline_with_an_error(server, caplog):
    journal = opened(server, close_within_s=0.3)
    server.stop()
    journal.append(b"1\n")
    begun_s = time.monotonic()
    journal.close()
    assert 0.1 < time.monotonic() - begun_s < 20.0
    assert "the end of the journal is lost" in caplog.text
    server.start()


def test_open_fails_with_one_error_if_hdfs_is_unreachable(server, monkeypatch):
    monkeypatch.setattr("am.journal_hdfs.RetryRule", lambda: RetryRule(deadline_s=0.1))
    with pytest.raises(JournalError, match=r"cannot open the journal: .*unreachable"):
        Journal("webhdfs://127.0.0.1:1/j")


def test_one_of_two_concurrent_openers_may_write(server):
    first = opened(server)
    for line in lines(0, 5):
        first.append(line)
    first.close()
    both = []
    threads = [threading.Thread(target=lambda: both.append(opened(server, deadline_s=20.0))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [journal.content() for journal in both] == [b"".join(lines(0, 5))] * 2
    for journal in both:
        journal.close()
    assert read(server) == b"".join(lines(0, 5))


def test_an_opener_reads_again_if_another_one_replaces_the_epoch_that_it_reads(server, monkeypatch):
    first = opened(server)
    for line in lines(0, 5):
        first.append(line)
    first.close()
    list_now, others = WebHdfs.list, []

    def list_late(hdfs, path):
        if path.endswith("/000001") and not others:
            others.append(None)
            opened(server).close()
        return list_now(hdfs, path)

    monkeypatch.setattr(WebHdfs, "list", list_late)
    late = opened(server)
    late.close()
    assert others
    assert late.content() == b"".join(lines(0, 5))
