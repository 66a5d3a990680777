"""Streams of server-sent events, and logs over HTTP."""

import asyncio

import pytest
from web_cases import busy, served

from rm_plugin.service.web import readers, stream
from rm_plugin.service.web.routes import LOG_READ_S
from rm_plugin.service.web.stream import app_mark, cluster_mark
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(stream, "STEP_S", 0.02)


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def next_event(answer):
    lines = []
    while True:
        line = (await answer.content.readline()).decode().strip()
        if line:
            lines.append(line)
        elif lines and not lines[0].startswith("retry"):
            return dict(each.split(": ", 1) for each in lines)
        else:
            lines = []


def test_event_comes_once_for_each_change():
    async def scenario():
        case = busy()
        entry = case.entries.get("app-0001")
        async with served(case) as site:
            after = app_mark(case.manager, entry)
            async with site.session.get(f"{site.url}api/v1/apps/app-0001/stream?after={after}") as answer:
                assert answer.headers["Content-Type"].startswith("text/event-stream")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(next_event(answer), 0.2)
                entry.last_seen_s += 1.0
                event = await next_event(answer)
                assert (event["event"], event["id"]) == ("change", app_mark(case.manager, entry))

    run(scenario)


def test_reader_with_an_old_mark_hears_at_once():
    async def scenario():
        async with served(busy()) as site:
            headers = {"Last-Event-ID": "long ago"}
            async with site.session.get(f"{site.url}api/v1/stream", headers=headers) as answer:
                assert (await next_event(answer))["event"] == "change"

    run(scenario)


def test_idle_stream_sends_now_and_then(monkeypatch):
    monkeypatch.setattr(stream, "IDLE_S", 0.05)

    async def scenario():
        case = busy()
        async with served(case) as site:
            address = f"{site.url}api/v1/stream?after={cluster_mark(case.manager)}"
            async with site.session.get(address) as answer:
                assert (await next_event(answer))["id"] == (await next_event(answer))["id"]

    run(scenario)


def test_streams_are_bounded_and_a_reader_that_leaves_makes_room(monkeypatch):
    monkeypatch.setattr(stream, "MAX_STREAMS", 1)
    monkeypatch.setattr(stream, "IDLE_S", 0.02)

    async def scenario():
        async with served(busy()) as site:
            address = f"{site.url}api/v1/stream"
            async with site.session.get(address) as first:
                await next_event(first)
                async with site.session.get(address) as refused:
                    assert refused.status == 503
            while True:
                async with site.session.get(address) as again:
                    if again.status == 200:
                        break
                await asyncio.sleep(0.02)

    run(scenario)


def test_mark_of_the_cluster_changes_with_events_and_heartbeats():
    async def scenario():
        case = busy()
        marks = {cluster_mark(case.manager)}
        case.recorder.record("am_started", app_id="app-0001")
        marks.add(cluster_mark(case.manager))
        case.entries.take_heartbeat(case.entries.get("app-0001"), pb.Heartbeat())
        marks.add(cluster_mark(case.manager))
        assert len(marks) == 3

    run(scenario)


def test_mark_of_an_ended_app_stays():
    async def scenario():
        case = busy()
        entry = case.entries.get("app-0003")
        assert entry.state is AppState.FAILED
        before = app_mark(case.manager, entry)
        case.manager.rounds.rounds += 1
        assert app_mark(case.manager, entry) == before

    run(scenario)


class TestLogs:
    @pytest.fixture
    def case(self, tmp_path):
        case = busy()
        case.manager.settings = case.manager.settings.model_copy(update={"state_dir": tmp_path})
        folder = case.manager.folder("app-0001")
        (folder / "jobs" / "job-0").mkdir(parents=True)
        (folder / "jobs" / "job-9").mkdir()
        (folder / "am-1.log").write_text("master\n")
        for name in ("task-10.log", "task-9.log", "secret.txt"):
            (folder / "jobs" / "job-0" / name).write_text(f"{name}: words\n")
        (folder / "jobs" / "job-0" / "task-3.log").symlink_to("/etc/passwd")
        return case

    def test_owner_reads_parts_of_the_logs_of_its_app(self, case, monkeypatch):
        monkeypatch.setattr(readers, "user_name", lambda uid: "ada")

        async def scenario():
            async with served(case) as site:
                listed = await site.json("/api/v1/apps/app-0001/logs")
                assert listed == {"logs": ["job-0/task-3.log", "job-0/task-9.log", "job-0/task-10.log", "am-1.log"]}
                address = "/api/v1/apps/app-0001/logs/job-0/task-9.log"
                status, headers, text = await site.get(f"{address}?offset=-6&limit=3")
                assert (status, text, headers["X-Next-Offset"]) == (200, "wor", "15")
                assert headers["X-Content-Type-Options"] == "nosniff"
                assert await site.text("/api/v1/apps/app-0001/logs/am-1.log") == "master\n"

        run(scenario)

    @pytest.mark.parametrize(
        "path",
        [
            "job-0/secret.txt",
            "job-0/task-3.log",
            "job-9/task-0.log",
            "job-0/..%2f..%2fam-1.log",
            "%2e%2e/am-1.log",
            "x",
        ],
    )
    def test_other_files_are_not_read(self, case, monkeypatch, path):
        monkeypatch.setattr(readers, "user_name", lambda uid: "ada")

        async def scenario():
            async with served(case) as site:
                status, _, _ = await site.get(f"/api/v1/apps/app-0001/logs/{path}")
                assert status == 404

        run(scenario)

    def test_other_users_are_refused_and_administrators_are_noted(self, case, monkeypatch):
        user = ["eve"]
        monkeypatch.setattr(readers, "user_name", lambda uid: user[0])

        async def scenario():
            async with served(case) as site:
                assert (await site.get("/api/v1/apps/app-0001/logs"))[0] == 403
                assert (await site.get("/api/v1/apps/app-0001/logs/am-1.log"))[0] == 403
                user[0] = case.manager.identities.user
                for _ in range(2):
                    assert (await site.get("/api/v1/apps/app-0001/logs/am-1.log"))[0] == 200
                noted = [event for event in case.recorder.events(0, "", 1_000) if event.kind == "user_acted"]
                assert [event.detail["action"] for event in noted] == ["logs_read"]
                case.clock.advance_to(case.clock.now_s() + LOG_READ_S)
                assert (await site.get("/api/v1/apps/app-0001/logs"))[0] == 200
                noted = [event for event in case.recorder.events(0, "", 1_000) if event.kind == "user_acted"]
                assert [event.detail["action"] for event in noted] == ["logs_read"] * 2

        run(scenario)


def test_reader_who_goes_away_at_once_is_no_defect(monkeypatch, caplog):
    async def gone(_answer, _data):
        raise ConnectionResetError

    async def scenario():
        async with served(busy()) as site:
            monkeypatch.setattr(stream.web.StreamResponse, "write", gone)
            async with site.session.get(f"{site.url}api/v1/stream") as answer:
                assert answer.status == 200
        assert "failed" not in caplog.text

    run(scenario)
