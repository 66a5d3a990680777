"""Retention: events of ended apps move to files; the apps are still listed and shown, and nothing is lost or reused."""

import asyncio
import errno
import os
import stat

import pytest
from event_log_cases import read_archive
from service_cases import app, registration
from web_cases import RmCase, served

from rm_plugin.service import recorder, retention
from rm_plugin.service.authentication import set_caller
from rm_plugin.service.client_service import ClientService
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.log_summary import read_summary
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.store import StoreError
from themis.errors import UnknownNameError
from themis.identity import Identity
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def ended(rm, count, first=1):
    """Apps that finished, one a second."""
    for number in range(first, first + count):
        entry = await rm.manager.submit(app(f"app-of-{number}"))
        _, session = await rm.manager.sessions.register(registration(entry))
        rm.clock.advance_to(rm.clock.now_s() + 1.0)
        finish = pb.Finish(state="FINISHED", rho={"themis": 1.5}, best="job-0")
        await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=finish))
        session.close()
        rm.manager.sessions.disconnected(entry, session)
        assert entry.ended


def settings(**retention_settings):
    return {"retention": retention_settings, "am_starts_at_once": 1_000}


def later(rm, seconds):
    rm.clock.advance_to(rm.clock.now_s() + seconds)


def ids(entries):
    return [entry.app_id for entry in entries]


def test_app_is_archived_once_its_time_has_passed(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_s=1_000.0)) as rm:
            await ended(rm, 2)
            running = await rm.manager.submit(app("running"))
            later(rm, 900.0)
            assert await rm.manager.retention.archive_old() == 0
            before = {app_id: rm.store.events(app_id=app_id) for app_id in ("app-0001", "app-0002")}
            later(rm, 200.0)
            assert await rm.manager.retention.archive_old() == 2
            assert ids(rm.entries) == [running.app_id]
            assert all(event.app_id in ("", running.app_id) for event in rm.store.events())
            assert rm.store.events(app_id=running.app_id)
            (path,) = (tmp_path / "archive").iterdir()
            found = list(read_archive(path))
            for app_id, events in before.items():
                assert tuple(event for event in found if event.app_id == app_id) == events
            assert rm.kinds[-1] == "events_archived"
            assert rm.store.events()[-1].detail["archive"] == path.name

    run(scenario)


def test_time_counts_from_end_of_app_not_from_its_submission(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_s=1_000.0)) as rm:
            entry, session = await rm.registered(app("long"))
            later(rm, 5_000.0)
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")))
            session.close()
            rm.manager.sessions.disconnected(entry, session)
            later(rm, 900.0)
            assert await rm.manager.retention.archive_old() == 0
            later(rm, 100.0)
            assert await rm.manager.retention.archive_old() == 1

    run(scenario)


def test_only_so_many_ended_apps_stay_and_the_oldest_go_first(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=3)) as rm:
            await ended(rm, 5)
            # They ended only just now.
            assert await rm.manager.retention.archive_old() == 0
            later(rm, retention.SETTLED_S)
            assert await rm.manager.retention.archive_old() == 2
            assert ids(rm.entries) == ["app-0003", "app-0004", "app-0005"]

    run(scenario)


def test_ended_app_stays_while_its_app_master_is_connected(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            entry, session = await rm.registered(app("connected"))
            await rm.manager.sessions.receive(entry, session, pb.AmMessage(id=1, finish=pb.Finish(state="FINISHED")))
            later(rm, retention.SETTLED_S)
            assert entry.ended
            assert await rm.manager.retention.archive_old() == 0
            session.close()
            rm.manager.sessions.disconnected(entry, session)
            assert await rm.manager.retention.archive_old() == 1

    run(scenario)


def test_archived_app_is_still_shown_listed_killed_and_watched(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=1)) as rm:
            await ended(rm, 4)
            later(rm, 100.0)
            set_caller(Identity(user="operator", is_admin=True))
            service = ClientService(rm.manager, "srtf")
            before = await service.Show(pb.ShowRequest(app_id="app-0002"), None)
            await rm.manager.retention.archive_old()
            for reference in ("app-0002", "app-of-2"):
                shown = await service.Show(pb.ShowRequest(app_id=reference), None)
                assert shown.archive.startswith(str(tmp_path / "archive" / "events-"))
                shown.archive = ""
                assert shown == before
            reply = await service.List(pb.ListRequest(limit=3), None)
            rest = await service.List(pb.ListRequest(limit=3, after=reply.next), None)
            assert ids(reply.apps) == ["app-0004", "app-0003", "app-0002"]
            assert (ids(rest.apps), rest.next, rest.total) == (["app-0001"], "", 4)
            failed = await service.List(pb.ListRequest(states=["FAILED"]), None)
            assert (ids(failed.apps), failed.total) == ([], 0)
            killed = await service.Kill(pb.KillRequest(app_id="app-0001", reason="late"), None)
            assert (killed.state, rm.entries.find("app-0001")) == ("FINISHED", None)
            events = [event async for event in service.Watch(pb.WatchRequest(app_id="app-0001", follow=True), None)]
            assert events == []
            with pytest.raises(UnknownNameError):
                await rm.manager.find("app-0009")

    run(scenario)


def test_pages_meet_archived_and_kept_apps_in_one_order(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 3)
            later(rm, 100.0)
            await rm.manager.retention.archive_old()
            await ended(rm, 2, first=4)
            running = await rm.manager.submit(app("running"))
            found, mark = [], ""
            for _ in range(9):
                page = await rm.manager.page_of_apps(after=mark, limit=2)
                found += ids(page.entries)
                if not (mark := page.next_mark):
                    break
            assert found == [running.app_id, "app-0005", "app-0004", "app-0003", "app-0002", "app-0001"]

    run(scenario)


def test_search_finds_archived_and_kept_apps_by_all_of_its_words(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 5)
            later(rm, 100.0)
            await rm.manager.retention.archive_old()
            running = await rm.manager.submit(app("running"))
            for search, found in (
                ("APP-0002", ["app-0002"]),
                (f"  {running.spec.user} app-0006", [running.app_id]),
                ("app-0002 app-0003", []),
                ("finished", ["app-0005", "app-0004", "app-0003", "app-0002", "app-0001"]),
            ):
                pages, mark = [], ""
                for _ in range(9):
                    page = await rm.manager.page_of_apps(search=search, after=mark, limit=2)
                    pages += ids(page.entries)
                    if not (mark := page.next_mark):
                        break
                assert pages == found, search

    run(scenario)


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_search_restores_only_the_archived_apps_that_it_finds(tmp_path, monkeypatch, rows):
    """To restore an app costs several times as much as to read its row."""
    restored = []
    restore = AppEntry.restored

    def seen(stored):
        restored.append(stored.app_id)
        return restore(stored)

    async def scenario():
        monkeypatch.setattr(recorder, "_SEARCHED_ROWS", rows)
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 5)
            later(rm, 100.0)
            await rm.manager.retention.archive_old()
            monkeypatch.setattr(AppEntry, "restored", seen)
            assert ids((await rm.manager.page_of_apps(search="app-0003", limit=2)).entries) == ["app-0003"]
            assert restored == ["app-0003"]
            queue = rm.manager.page_of_apps(search="default USER finished", limit=2)
            assert ids((await queue).entries) == ["app-0005", "app-0004"]

    run(scenario)


def test_app_that_is_archived_while_a_page_is_read_is_on_it(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=2)) as rm:
            await ended(rm, 4)
            later(rm, 100.0)
            await rm.manager.retention.archive_old()
            await ended(rm, 2, first=5)
            later(rm, 100.0)
            read = rm.manager.recorder.archived_apps

            async def archived_meanwhile(*query):
                found = await read(*query)
                if query[0] == float("inf"):
                    assert await rm.manager.retention.archive_old() == 2
                return found

            rm.manager.recorder.archived_apps = archived_meanwhile
            page = await rm.manager.page_of_apps(limit=10)
            assert ids(page.entries) == [f"app-000{number}" for number in (6, 5, 4, 3, 2, 1)]

    run(scenario)


def test_restart_counts_and_finds_archived_apps_and_uses_no_number_twice(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 3)
            later(rm, 100.0)
            await rm.manager.retention.archive_old()
            sequence = rm.store.events()[-1].sequence
        async with memory_service(tmp_path, store=rm.store, **settings()) as again:
            assert ids(again.entries) == []
            assert again.entries.count([AppState.FINISHED]) == 3
            assert (await again.manager.find("app-0003")).finish.rho["themis"] == 1.5
            entry = await again.manager.submit(app("new"))
            assert entry.app_id == "app-0004"
            assert again.store.events(app_id=entry.app_id)[0].sequence == sequence + 1

    run(scenario)


def test_old_events_of_rounds_are_archived_and_start_still_knows_them(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_s=1_000.0)) as rm:
            rm.manager.recorder.record("round_started", detail={"round_id": 41})
            rm.manager.recorder.record("round_granted", detail={"round_id": 41, "memory": {"a": 1}})
            rm.manager.recorder.record("round_ended", detail={"round_id": 41})
            later(rm, 1_001.0)
            rm.manager.recorder.record("round_started", detail={"round_id": 42})
            await rm.manager.retention.archive_old()
            assert rm.kinds == ["round_started", "events_archived"]
            summary = read_summary(rm.store)
            assert (summary.last_round, summary.open_rounds, summary.memory) == (42, {42}, {"a": 1})

    run(scenario)


def test_failed_write_archives_nothing_and_next_pass_does(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 2)
            later(rm, 100.0)
            before = rm.store.events()
            rm.store.trouble = "disk full"
            with pytest.raises(StoreError):
                await rm.manager.retention.archive_old()
            assert (rm.store.events(), ids(rm.entries)) == (before, ["app-0001", "app-0002"])
            rm.store.trouble = ""
            await until(lambda: not rm.manager.changes.trouble)
            assert await rm.manager.retention.archive_old() == 2

    run(scenario)


def test_archive_that_cannot_be_written_loses_nothing(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 1)
            later(rm, 100.0)
            (tmp_path / "archive").write_text("no folder")
            before = rm.store.events()
            with pytest.raises(OSError):
                await rm.manager.retention.archive_old()
            assert (rm.store.events(), ids(rm.entries)) == (before, ["app-0001"])

    run(scenario)


def test_archive_that_the_disk_refuses_when_it_is_synced_loses_nothing(tmp_path, monkeypatch):
    sync = os.fsync

    def refused(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "no")
        sync(descriptor)

    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 1)
            later(rm, 100.0)
            before = rm.store.events()
            monkeypatch.setattr("rm_plugin.service.archive.os.fsync", refused)
            with pytest.raises(OSError):
                await rm.manager.retention.archive_old()
            assert rm.store.events() == before
            # What a full disk did not take whole would keep the store from its space.
            assert not list((tmp_path / "archive").iterdir())

    run(scenario)


def test_events_are_dropped_without_archive(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0, archive=False)) as rm:
            await ended(rm, 1)
            later(rm, 100.0)
            await rm.manager.retention.archive_old()
            assert not (tmp_path / "archive").exists()
            assert rm.store.events(app_id="app-0001") == ()
            set_caller(Identity(user="operator", is_admin=True))
            shown = await ClientService(rm.manager, "srtf").Show(pb.ShowRequest(app_id="app-0001"), None)
            assert shown.archive == ""

    run(scenario)


def test_many_apps_are_archived_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "_APPS_A_FILE", 2)
    monkeypatch.setattr(retention, "_EVENTS_A_READ", 3)

    async def scenario():
        async with memory_service(tmp_path, **settings(keep_s=500.0)) as rm:
            for number in range(1, 8):
                rm.manager.recorder.record("round_started", detail={"round_id": number})
            await ended(rm, 5)
            later(rm, 1_000.0)
            assert await rm.manager.retention.archive_old() == 5
            assert set(rm.kinds) == {"events_archived"}
            events = [event for path in (tmp_path / "archive").iterdir() for event in read_archive(path)]
            assert len({event.sequence for event in events}) == len(events)
            assert sum(event.kind == "round_started" for event in events) == 7

    run(scenario)


def test_events_of_large_app_are_removed_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "_EVENTS_A_READ", 10)
    removed = []

    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 1)
            for number in range(45):
                rm.manager.recorder.record("job_progress", app_id="app-0001", detail={"iteration": number})
            later(rm, 100.0)
            before = rm.store.events(app_id="app-0001")
            commit = rm.manager.recorder.commit

            async def counted(batch):
                await commit(batch)
                removed.append(len(before) - len(rm.store.events(app_id="app-0001")))

            rm.manager.recorder.commit = counted
            assert await rm.manager.retention.archive_old() == 1
            (path,) = (tmp_path / "archive").iterdir()
            assert tuple(event for event in read_archive(path) if event.app_id) == before
            assert removed == [*range(10, len(before), 10), len(before)]

    run(scenario)


def test_late_end_of_archived_apps_master_is_ignored(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings(keep_apps=0)) as rm:
            await ended(rm, 1)
            later(rm, 100.0)
            await rm.manager.retention.archive_old()
            await rm.launcher.end("app-0001", 0)
            assert "am_lost" not in rm.kinds

    run(scenario)


def test_pages_show_archived_apps(tmp_path):
    async def scenario():
        case = RmCase(((4,),), folder=str(tmp_path))
        case.app("done", state=AppState.FINISHED, finished_at_s=case.clock.now_s())
        case.entries.refused_messages = 3
        case.running("going")
        case.clock.advance_to(case.clock.now_s() + 10**7)
        assert await case.manager.retention.archive_old() == 1
        async with served(case) as site:
            apps = await site.json("/api/v1/apps")
            assert [app["app_id"] for app in apps["apps"]] == ["app-0002", "app-0001"]
            assert apps["total"] == 2
            assert (await site.json("/api/v1/apps/done"))["archive"].endswith(".jsonl.gz")
            assert (await site.json("/api/v1/apps/going"))["archive"] is None
            assert "jsonl.gz" in await site.text("/apps/app-0001")
            assert "and 1 more app" in await site.text("/")
            assert 'themis_apps{state="FINISHED"} 1' in await site.text("/metrics")
            assert "themis_messages_refused_total 3\n" in await site.text("/metrics")
            assert (await site.json("/api/v1/events?app=app-0001"))["events"] == []

    run(scenario)


async def trains(rm, entry, seconds, first=0):
    """Events of an app as its jobs cause them, one a second."""
    for second in range(first, first + seconds):
        later(rm, 1.0)

        def write(change, second=second):
            change.event("job_progress", app_id=entry.app_id, detail={"job_id": "job-0", "iteration": second})
            if second % 10 == 0:
                change.event("tuner", app_id=entry.app_id, detail={"phase": second})

        await rm.manager.changes.make(write)


def kinds_of(rm, entry):
    return [event.kind for event in rm.store.events(app_id=entry.app_id)]


def test_frequent_events_of_an_app_that_runs_are_archived_an_hour_later(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings()) as rm:
            entry, _ = await rm.registered(app("long"))
            other, _ = await rm.registered(app("other"))
            before = kinds_of(rm, entry)
            await trains(rm, entry, 30)
            await trains(rm, other, 5)
            written = rm.store.events()
            assert await rm.manager.retention.archive_frequent() == 0
            await trains(rm, entry, 3, first=30)
            assert await rm.manager.retention.archive_frequent() == 35
            # What the app is known by stays, as do the events of the last hour.
            assert kinds_of(rm, entry) == [*before, *["tuner"] * 3, "job_progress", "tuner", *["job_progress"] * 2]
            (path,) = (tmp_path / "archive").iterdir()
            progress = [event for event in written if event.kind == "job_progress"]
            assert sorted(read_archive(path), key=lambda event: event.sequence) == progress
            archived = rm.store.events()[-1]
            assert archived.detail == {"apps": 0, "events": 35, "archive": path.name}
            assert await rm.manager.retention.archive_frequent() == 3
            assert await rm.manager.retention.archive_frequent() == 0

    run(scenario)


def test_store_of_an_app_that_runs_for_long_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(retention, "_EVENTS_A_READ", 7)
    monkeypatch.setattr(retention, "_EVENTS_A_FILE", 20)

    async def scenario():
        async with memory_service(tmp_path, **settings(archive=False)) as rm:
            entry, _ = await rm.registered(app("long"))
            sizes = []
            for hour in range(5):
                await trains(rm, entry, 100, first=100 * hour + 1)
                await rm.manager.retention.archive_frequent()
                sizes.append(kinds_of(rm, entry).count("job_progress"))
            assert sizes == [100] * 5
            assert kinds_of(rm, entry).count("tuner") == 50
            assert not (tmp_path / "archive").exists()
        sequence = rm.store.events()[-1].sequence
        # Another start begins anew, and numbers no event twice.
        async with memory_service(tmp_path, store=rm.store, **settings(archive=False)) as rm:
            (entry,) = rm.entries
            assert await rm.manager.retention.archive_frequent() == 100
            assert all(event.sequence > sequence for event in rm.store.events()[-5:])
            assert "job_progress" not in kinds_of(rm, entry)

    run(scenario)


def test_frequent_events_stay_if_they_cannot_be_archived(tmp_path):
    async def scenario():
        async with memory_service(tmp_path, **settings()) as rm:
            entry, _ = await rm.registered(app("long"))
            await trains(rm, entry, 5)
            await rm.manager.retention.archive_frequent()
            before = rm.store.events()
            rm.store.trouble = "disk full"
            with pytest.raises(StoreError):
                await rm.manager.retention.archive_frequent()
            rm.store.trouble = ""
            assert rm.store.events() == before
            await rm.manager.changes.close()

    run(scenario)
