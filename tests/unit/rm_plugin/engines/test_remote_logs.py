"""Logs from an app master's page: new bytes are appended, and another attempt's log replaces the file."""

import asyncio
from types import SimpleNamespace

import pytest
from aiohttp import web

from rm_plugin.engines import remote_logs
from rm_plugin.engines.remote_logs import fetch_archive, fetch_page
from themis.errors import InputError


class Page:
    """The log routes of an app master's page."""

    def __init__(self):
        self.logs = {}
        self.sent = 0
        self.kept_from = 0

    async def start(self):
        app = web.Application()
        app.router.add_get("/logs.json", self.listing)
        app.router.add_get("/logs/{path:.*}", self.rest)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/"
        return self

    async def listing(self, _request):
        return web.json_response({"files": [{"path": path, "size_bytes": len(log)} for path, log in self.logs.items()]})

    async def rest(self, request):
        log = self.logs[request.match_info["path"]]
        body = log[max(self.kept_from, int(request.query["offset"])) :]
        self.sent += len(body)
        return web.Response(body=body, headers={"X-Next-Offset": str(len(log))})


def run(scenario):
    async def whole():
        pages = [await Page().start(), await Page().start()]
        try:
            await scenario(*pages)
        finally:
            for page in pages:
                await page.runner.cleanup()

    asyncio.run(whole())


def test_only_new_bytes_are_fetched(tmp_path):
    async def scenario(page, _):
        page.logs = {"j0/task-0.log": b"one\n"}
        assert await fetch_page(page.url, tmp_path)
        page.logs = {"j0/task-0.log": b"one\ntwo\n", "j1/task-0.log": b"x\n"}
        assert await fetch_page(page.url, tmp_path)
        assert page.sent == len(b"one\ntwo\nx\n")

    run(scenario)
    assert (tmp_path / "jobs/j0/task-0.log").read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "jobs/j1/task-0.log").read_bytes() == b"x\n"


def test_log_of_next_attempt_replaces_lost_one(tmp_path):
    async def scenario(first, second):
        first.logs = {"j0/task-0.log": b"step 1\nstep 2\n", "j9/task-0.log": b"lost\n"}
        assert await fetch_page(first.url, tmp_path)
        # It kept less, and has logged more than that since.
        second.logs = {"j0/task-0.log": b"step 1\nagain 2\nagain 3\n"}
        assert await fetch_page(second.url, tmp_path)

    run(scenario)
    assert (tmp_path / "jobs/j0/task-0.log").read_bytes() == b"step 1\nagain 2\nagain 3\n"
    assert not (tmp_path / "jobs/j9").exists()


def test_log_restored_from_archive_replaces_lost_one(tmp_path, monkeypatch):
    hdfs = SimpleNamespace(status=lambda path: SimpleNamespace(size_bytes=1), read=lambda path, size: [b"x"])
    monkeypatch.setattr(remote_logs, "open_webhdfs", lambda uri: (hdfs, "/s"))
    old = lambda content, folder, max_bytes: (folder / "jobs/j0/task-0.log").write_bytes(b"step 1\nold\n")  # noqa: E731
    monkeypatch.setattr(remote_logs, "unpack_files", old)

    async def scenario(page, _):
        page.logs = {"j0/task-0.log": b"step 1\n"}
        assert await fetch_page(page.url, tmp_path)
        fetch_archive("hdfs:///s", tmp_path)
        page.logs = {"j0/task-0.log": b"step 1\nstep 2\nstep 3\n"}
        assert await fetch_page(page.url, tmp_path)

    run(scenario)
    assert (tmp_path / "jobs/j0/task-0.log").read_bytes() == b"step 1\nstep 2\nstep 3\n"


def test_archive_that_would_fill_the_memory_is_not_read(tmp_path, monkeypatch):
    size_bytes = remote_logs.MAX_ARCHIVE_BYTES + 1
    hdfs = SimpleNamespace(
        status=lambda path: SimpleNamespace(size_bytes=size_bytes), read=lambda *_: pytest.fail("it is read")
    )
    monkeypatch.setattr(remote_logs, "open_webhdfs", lambda uri: (hdfs, "/s"))
    with pytest.raises(InputError, match="the archive of the app's logs is too large"):
        fetch_archive("hdfs:///s", tmp_path)


@pytest.mark.parametrize("path", ["../../rm.yaml", "/etc/passwd"])
def test_name_outside_of_folder_is_refused(tmp_path, path):
    async def scenario(page, _):
        page.logs = {path: b"x"}
        assert not await fetch_page(page.url, tmp_path / "app")

    run(scenario)
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["logs.from"]


def test_silent_page_keeps_fetched_logs(tmp_path):
    async def scenario(page, _):
        page.logs = {"j0/task-0.log": b"one\n"}
        assert await fetch_page(page.url, tmp_path)
        await page.runner.cleanup()
        assert not await fetch_page(page.url, tmp_path)

    run(scenario)
    assert (tmp_path / "jobs/j0/task-0.log").read_bytes() == b"one\n"


def test_offsets_stay_if_the_page_skips_a_hole(tmp_path):
    async def scenario(page, _):
        page.logs = {"j0/task-0.log": b"one\n"}
        assert await fetch_page(page.url, tmp_path)
        page.logs = {"j0/task-0.log": b"one\n" + bytes(5000) + b"two\n"}
        page.kept_from = 5004
        assert await fetch_page(page.url, tmp_path)
        assert page.sent == len(b"one\ntwo\n")

    run(scenario)
    assert (tmp_path / "jobs/j0/task-0.log").read_bytes() == b"one\n" + bytes(5000) + b"two\n"


def test_redirect_of_a_page_is_not_followed(tmp_path):
    async def scenario(page, secret):
        secret.logs = {"j0/task-0.log": b"not for apps\n"}

        async def elsewhere(request):
            raise web.HTTPFound(secret.url.rstrip("/") + request.path_qs)

        liar = web.Application()
        liar.router.add_get("/{path:.*}", elsewhere)
        runner = web.AppRunner(liar)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = site._server.sockets[0].getsockname()[1]
            assert not await fetch_page(f"http://127.0.0.1:{port}/", tmp_path)
        finally:
            await runner.cleanup()
        assert secret.sent == 0

    run(scenario)


@pytest.mark.parametrize("listed", [[], {"files": 1}, {"files": ["x"]}, {"files": [{}] * 30_000}, {"x": "y" * 2**23}])
def test_list_of_logs_that_is_none_or_too_long_is_refused(listed, tmp_path):
    async def scenario(page, _):
        async def other(_request):
            return web.json_response(listed)

        app = web.Application()
        app.router.add_get("/logs.json", other)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = site._server.sockets[0].getsockname()[1]
            assert not await fetch_page(f"http://127.0.0.1:{port}/", tmp_path)
        finally:
            await runner.cleanup()

    run(scenario)


def test_log_is_copied_up_to_the_limit(tmp_path):
    async def scenario(page, _):
        page.logs = {"j0/task-0.log": b"x" * 1000}
        assert await fetch_page(page.url, tmp_path, max_bytes=100)

    run(scenario)
    assert (tmp_path / "jobs/j0/task-0.log").stat().st_size == 100


def test_page_that_does_not_answer_is_in_the_log_without_its_secret_path(tmp_path, caplog):
    async def babble(reader, writer):
        await reader.readline()
        writer.write(b"what?\r\n\r\n")
        writer.close()

    async def whole():
        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with caplog.at_level("INFO"):
                # aiohttp's error for an answer that is not HTTP holds the address.
                assert not await fetch_page(f"http://127.0.0.1:{port}/secret/", tmp_path / "app-0001")
        assert "no logs from the page of app-0001" in caplog.text
        assert "secret" not in caplog.text

    asyncio.run(asyncio.wait_for(whole(), 20))
