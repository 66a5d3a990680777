"""The app master's own page: the app, its jobs, their logs; what a task may leave in its folder."""

import asyncio
import contextlib
import http.client
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from agent_cases import cluster_of
from capped_cases import capped_log
from msgspec.structs import replace

from am.app import App
from am.journal import Journal
from am.page.html import app_page
from am.page.server import AmPage, is_loopback
from am.page.state import AmPageState, JobRow, LeaseRow, page_state
from am.page.status_document import status_document
from am.profiler.slowdowns import LevelSlowdown
from rm_plugin.engines.remote_logs import fetch_page
from themis.apps import AppSpec, Estimate, JobSpec, ProgramSpec, TunerSpec
from themis.clock import VirtualClock
from themis.cluster import GpuId
from themis.lifecycle import JobState
from themis.wire import themis_pb2 as pb
from themis.wire.app_document import app_document
from themis.wire.values import app_to_message, cluster_to_message

HOSTILE = "<script>alert(7)</script>\"'&"


def state(folder=Path("nowhere"), *jobs, **changes):
    fields = {
        "app_id": "app-0001",
        "name": "search",
        "tuner": "single",
        "attempt": 2,
        "now_s": 1000.0,
        "progress": 0.25,
        "rho": 1.5,
        "phase": 1,
        "phases": 2,
        "best": "job-0",
        "jobs": jobs or (row("job-0"), row("job-1", loss=0.5, gpus="m0/0 m0/1", state="RUNNING")),
        "leases": (LeaseRow(lease_id=7, gpu="m0/0", state="GRANTED", expires_at_s=1060.0),),
        "folder": folder,
    }
    return AmPageState(**{**fields, **changes})


def row(job_id, **changes):
    fields = {"state": "WAITING", "iteration": 3, "target_iteration": 9, "hyper_parameters": {"lr": 0.1}}
    return JobRow(job_id=job_id, **{**fields, **changes})


class Site:
    def __init__(self, session, root):
        self.session, self.root = session, root

    async def get(self, path):
        # The path goes out as it stands: clients of another kind do not tidy up dots either.
        url = aiohttp.client.URL(self.root + path, encoded=True)
        async with self.session.get(url) as answer:
            return answer.status, answer.headers, await answer.read()


def ask(shown, scenario):
    """Serve the state `shown`, and run the scenario against the page."""

    async def whole():
        page = AmPage(lambda: shown)
        url = await page.start("127.0.0.1")
        try:
            async with aiohttp.ClientSession() as session:
                await scenario(Site(session, url.removesuffix("/")))
        finally:
            await page.stop()

    asyncio.run(whole())


@pytest.fixture
def folder(tmp_path):
    job = tmp_path / "jobs" / "job-0"
    job.mkdir(parents=True)
    (job / "task-0.log").write_bytes(b"0123456789")
    (job / "task-10.log").write_bytes(b"ten")
    (job / "task-2.log").write_bytes(b"two")
    (job / "history.jsonl").write_text('{"step": 1}\n')
    (job / "secret.txt").write_text("secret")
    (tmp_path / "am-1.log").write_text("secret")
    return tmp_path


class TestPages:
    def test_the_app_with_its_jobs_and_relative_links_only(self):
        async def scenario(site):
            status, headers, body = await site.get("/")
            text = body.decode()
            assert status == 200
            assert headers["Content-Type"] == "text/html; charset=utf-8"
            for shown in ("search", "app-0001, attempt 2", "25 %", "1 of 2", "3/9", "m0/0 m0/1", "lr=0.1", "in 60.0 s"):
                assert shown in text, shown
            assert 'href="/' not in text
            assert 'href="./logs/job-1/task-0.log?offset=-65536"' in text

        ask(state(), scenario)

    @pytest.mark.parametrize("path", ["/", "/logs/"])
    def test_page_says_that_its_address_is_the_only_key(self, folder, path):
        async def scenario(site):
            _, _, body = await site.get(path)
            assert "Not signed in: who has the address of this page" in body.decode()

        ask(state(folder=folder), scenario)

    def test_the_same_as_json(self):
        async def scenario(site):
            status, _, body = await site.get("/status.json")
            document = json.loads(body, parse_constant=lambda name: pytest.fail(name))
            assert status == 200
            assert (document["rho_themis"], document["progress"], document["attempt"]) == (None, 0.25, 2)
            assert document["jobs"][0]["loss"] is None
            assert document["jobs"][1]["gpus"] == 2
            assert document["jobs"][1]["gpu_names"] == ["m0/0", "m0/1"]
            assert document["leases"][0]["expires_at_s"] == 1060.0
            assert document["jobs"][0]["hyper_parameters"] == {"lr": None}

        ask(
            state(rho=math.inf, jobs=(row("a", loss=math.nan, hyper_parameters={"lr": math.inf}), state().jobs[1])),
            scenario,
        )

    def test_keys_that_rest_has_too_have_values_of_the_same_kind(self):
        """A program that reads both needs one reader: REST's keys, and the few that only the app master knows."""
        message = pb.AppStatus(spec=pb.AppSpec(jobs=[pb.JobSpec(job_id="job-0")]))
        message.leases.add(lease_id=7, machine_id="m0")
        rest, own = app_document(message), status_document(state())
        assert set(own) - set(rest) == {"attempt", "now_s", "rho_themis"}
        assert set(own["jobs"][1]) - set(rest["jobs"][0]) == {"gpu_names"}
        assert set(own["leases"][0]) <= set(rest["leases"][0])
        assert set(own["metric"]) == set(rest["metric"])
        for key in set(own["jobs"][1]) & set(rest["jobs"][0]):
            if None not in (own["jobs"][1][key], rest["jobs"][0][key]):
                assert type(own["jobs"][1][key]) is type(rest["jobs"][0][key]), key

    def test_names_never_become_html(self, folder):
        jobs = (row(HOSTILE, state=HOSTILE, hyper_parameters={HOSTILE: HOSTILE}),)
        (folder / "jobs" / "x").mkdir()

        async def scenario(site):
            for path in ("/", "/logs/", f"/logs/{HOSTILE[:8]}/task-0.log"):
                _, _, body = await site.get(path)
                assert body.decode().count("<script") == 1, path
                assert body.decode().count("<img") == 0

        ask(state(folder, name=HOSTILE, jobs=jobs, tuner=HOSTILE, best=HOSTILE), scenario)

    @pytest.mark.parametrize(("path", "kind"), [("/", "text/html"), ("/status.json", "application/json")])
    def test_page_without_app_asks_to_retry(self, path, kind):
        async def scenario(site):
            status, headers, body = await site.get(path)
            assert status == 503
            assert headers["Content-Type"].startswith(kind)
            assert b"not received its app yet" in body

        ask(None, scenario)

    def test_unknown_urls_are_not_found(self):
        async def scenario(site):
            assert (await site.get("/nothing"))[0] == 404

        ask(state(), scenario)


class TestLogs:
    def test_logs_are_listed_by_task(self, folder):
        async def scenario(site):
            _, _, body = await site.get("/logs/")
            names = [
                name for name in ("task-0.log", "task-2.log", "task-10.log", "history.jsonl") if name in body.decode()
            ]
            assert len(names) == 4
            text = body.decode()
            assert text.index("task-0.log") < text.index("task-2.log") < text.index("task-10.log")
            assert "secret" not in text

        ask(state(folder), scenario)

    def test_part_of_a_capped_log_begins_after_its_hole(self, folder):
        path = folder / "jobs/job-0/task-0.log"
        kept = capped_log(path)

        async def scenario(site):
            _, headers, body = await site.get("/logs/job-0/task-0.log?offset=5&limit=1000")
            start = int(headers["X-Next-Offset"]) - len(body)
            assert len(body) == 1000
            assert path.read_bytes()[start : start + 1000] == body
            assert 0 <= path.stat().st_size - len(kept) - start < 20

        ask(state(folder), scenario)

    @pytest.mark.parametrize(
        ("query", "data", "following"),
        [
            ("", b"0123456789", 10),
            ("?offset=4", b"456789", 10),
            ("?offset=4&limit=3", b"456", 7),
            ("?offset=-3", b"789", 10),
            ("?offset=-300", b"0123456789", 10),
            ("?offset=10", b"", 10),
            ("?offset=99", b"", 10),
        ],
    )
    def test_logs_are_read_in_parts(self, folder, query, data, following):
        async def scenario(site):
            status, headers, body = await site.get("/logs/job-0/task-0.log" + query)
            assert (status, body, headers["X-Next-Offset"]) == (200, data, str(following))
            assert headers["Content-Type"] == "text/plain; charset=utf-8"
            assert headers["X-Content-Type-Options"] == "nosniff"

        ask(state(folder), scenario)

    def test_history_is_a_log(self, folder):
        async def scenario(site):
            assert (await site.get("/logs/job-0/history.jsonl"))[2] == b'{"step": 1}\n'

        ask(state(folder), scenario)

    @pytest.mark.parametrize("query", ["?offset=x", "?limit=0", "?limit=1e3", "?offset=1%202"])
    def test_a_bad_offset_or_limit_is_refused(self, folder, query):
        async def scenario(site):
            assert (await site.get("/logs/job-0/task-0.log" + query))[0] == 400

        ask(state(folder), scenario)

    @pytest.mark.parametrize(
        "path",
        [
            "/logs/job-0/secret.txt",
            "/logs/job-0/task-9.log",
            "/logs/job-1/task-0.log",
            "/logs/nobody/task-0.log",
            "/logs/../am-1.log",
            "/logs/job-0/../../../am-1.log",
            "/logs/job-0/..%2f..%2f..%2fam-1.log",
            "/logs/..%2f/am-1.log",
            "/logs/%2e%2e/am-1.log",
            "/logs/job-0%2f../task-0.log",
            "/logs/job-0/task-0.log%00",
            "/logs/job-0/task-0.log%0a",
            "/logs//etc/passwd",
            "/logs/job-0/%2fetc%2fpasswd",
        ],
    )
    def test_nothing_else_can_be_read(self, folder, path):
        async def scenario(site):
            status, _, body = await site.get(path)
            assert status == 404
            assert b"secret" not in body.replace(b"secret.txt", b"")
            assert b"0123456789" not in body

        ask(state(folder), scenario)

    @pytest.mark.parametrize("job_id", ["..", "../..", "job-0/..", ".", "link"])
    def test_job_folder_outside_app_folder_has_no_logs(self, folder, job_id):
        (folder / "task-0.log").write_text("secret")
        (folder / "jobs" / "link").symlink_to(folder)

        async def scenario(site):
            status, _, _ = await site.get(f"/logs/{job_id.replace('.', '%2e').replace('/', '%2f')}/task-0.log")
            assert status == 404
            assert b"task-0.log" not in (await site.get("/logs/"))[2]

        ask(state(folder, row(job_id)), scenario)

    def test_links_pipes_and_folders_are_no_logs(self, folder):
        job = folder / "jobs" / "job-1"
        job.mkdir()
        (job / "task-0.log").symlink_to(folder / "am-1.log")
        os.mkfifo(job / "task-1.log")
        (job / "task-2.log").mkdir()

        async def scenario(site):
            for number in range(3):
                status, _, body = await site.get(f"/logs/job-1/task-{number}.log")
                assert (status, b"secret" in body) == (404, False)
            assert b"job-1" not in (await site.get("/logs/"))[2]

        ask(state(folder), scenario)

    def test_ids_with_any_letters_are_found_by_the_links(self, folder):
        job_id = "a b:ü?#%&{x}"
        (folder / "jobs" / job_id).mkdir()
        (folder / "jobs" / job_id / "task-0.log").write_bytes(b"found")

        async def scenario(site):
            text = (await site.get("/logs/"))[2].decode()
            address = text.split('href="./')[1].split('"')[0]
            assert (await site.get("/logs/" + address))[2] == b"found"

        ask(state(folder, row(job_id)), scenario)


class TestListening:
    @pytest.mark.parametrize(
        ("host", "is_it"),
        [
            ("localhost", True),
            ("127.0.0.1", True),
            ("127.8.9.1", True),
            ("::1", True),
            ("node7", False),
            ("10.0.0.7", False),
        ],
    )
    def test_which_hosts_are_this_machine_only(self, host, is_it):
        assert is_loopback(host) is is_it

    @pytest.mark.parametrize(("host", "elsewhere"), [("localhost", False), ("node7.example.org", True)])
    def test_other_machines_are_let_in_under_a_name_that_they_know(self, host, elsewhere):
        async def whole():
            page = AmPage(lambda: None)
            port = urlsplit(await page.start(host)).port
            try:
                # Another address of this machine, as seen from itself.
                reached = await asyncio.to_thread(reaches, "127.0.0.2", port)
                assert reached is elsewhere
            finally:
                await page.stop()
            assert not await asyncio.to_thread(reaches, "127.0.0.1", port)

        asyncio.run(whole())

    def test_reader_without_the_secret_path_gets_nothing(self, folder):
        async def whole():
            page = AmPage(lambda: state(folder, row("job-0")))
            url = urlsplit(await page.start("127.0.0.1"))
            assert len(url.path) == 34
            try:
                async with aiohttp.ClientSession(f"http://{url.netloc}") as session:
                    async with session.get(url.path) as answer:
                        assert answer.status == 200
                    wrong = "/" + "x" * 32 + "/"
                    for path in ("/", "/status.json", "/logs/", "/logs/job-0/task-0.log", wrong, f"{wrong}status.json"):
                        async with session.get(path) as answer:
                            text = await answer.text()
                            assert answer.status == 404 and "job-" not in text.replace(path, "")
            finally:
                await page.stop()

        asyncio.run(whole())

    def test_service_copies_logs_from_the_secret_path(self, folder, tmp_path_factory):
        copied = tmp_path_factory.mktemp("copied")

        async def whole():
            page = AmPage(lambda: state(folder, row("job-0")))
            url = await page.start("127.0.0.1")
            try:
                assert await fetch_page(url, copied)
            finally:
                await page.stop()

        asyncio.run(whole())
        assert (copied / "jobs/job-0/task-0.log").read_bytes() == b"0123456789"

    def test_an_app_master_without_a_page_loads_no_web_server(self):
        code = "import sys, am.page.server, am.page.state; sys.exit('aiohttp' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def reaches(host, port):
    # A whole exchange: a connection that is cut before it is taken up may outlive the loop.
    connection = http.client.HTTPConnection(host, port, timeout=30)
    with contextlib.closing(connection), contextlib.suppress(ConnectionRefusedError):
        connection.request("GET", "/status.json", headers={"Connection": "close"})
        # The path lacks the page's secret.
        return connection.getresponse().status == 404
    return False


class TestState:
    @pytest.fixture
    def app(self, tmp_path):
        spec = AppSpec(
            name="x",
            tuner=TunerSpec(name="single"),
            program=ProgramSpec(name="p"),
            jobs=tuple(
                JobSpec(job_id=f"j{place}", iterations_total=100, hyper_parameters={"lr": 0.5}) for place in range(2)
            ),
            estimate=Estimate(serial_iteration_s=2.0),
        )
        journal = Journal(tmp_path / "journal.jsonl")
        registered = pb.Registered(
            app_id="app-1",
            spec=app_to_message(spec),
            cluster=cluster_to_message(cluster_of((2, 2))),
            submitted_at_s=900.0,
            now_s=1000.0,
            lease_s=600.0,
            checkpoint_lead_s=30.0,
            grace_s=30.0,
            active_apps=2,
            contention=1.5,
            bundle_rule="continuation",
        )
        yield App(registered, tmp_path, str(tmp_path), journal, VirtualClock(50.0))
        journal.close()

    def test_page_state_equals_app(self, app):
        lease = pb.Lease(lease_id=1, machine_id="m0", gpu_index=1, expires_at_s=1600.0, state="GRANTED")
        app.take_leases(pb.LeaseUpdate(version=1, leases=[lease]))
        job = app.search.jobs["j0"]
        job.gpus, job.restarts = (GpuId("m0", 1),), 2
        app.search.turn(job, JobState.STARTING)
        shown = page_state(app, 3)
        assert (shown.app_id, shown.name, shown.attempt, shown.now_s) == ("app-1", "x", 3, 1000.0)
        assert shown.folder == app.folder
        assert shown.rho == pytest.approx(app.rho_now(app.view({})))
        assert (shown.phase, shown.phases, shown.progress) == (1, 1, 0.0)
        assert shown.leases == (LeaseRow(lease_id=1, gpu="m0/1", state="GRANTED", expires_at_s=1600.0),)
        assert shown.jobs[0] == JobRow(
            job_id="j0",
            state="STARTING",
            iteration=0,
            target_iteration=100,
            gpus="m0/1",
            restarts=2,
            hyper_parameters={"lr": 0.5},
            slowdown=app.search.jobs["j0"].profile.slowdown_by_level(),
        )
        assert replace(shown.jobs[1], job_id="j0", state="STARTING", gpus="m0/1", restarts=2) == shown.jobs[0]

    def test_planned_gangs_count_in_rho(self, app):
        leases = [
            pb.Lease(lease_id=gpu + 1, machine_id="m0", gpu_index=gpu, expires_at_s=1600.0, state="GRANTED")
            for gpu in range(2)
        ]
        app.take_leases(pb.LeaseUpdate(version=1, leases=leases))
        planned = {"j0": (GpuId("m0", 0),), "j1": (GpuId("m0", 1),)}
        assert page_state(app, 1, planned).rho < page_state(app, 1).rho

    def test_rho_is_none_after_the_search(self, app):
        for job in app.search.jobs.values():
            app.search.failed(job, "no luck")
        shown = page_state(app, 1)
        assert shown.rho is None
        assert {job.state for job in shown.jobs} == {"FAILED"}


def test_tracked_run_is_a_link_only_to_the_web():
    runs = ("https://wandb.ai/me/digits/runs/1b2c", "javascript:alert(7)", "")
    tracked = state(Path("nowhere"), *(row(f"job-{n}", tracked_run=run) for n, run in enumerate(runs)))
    shown = app_page(tracked)
    assert 'href="https://wandb.ai/me/digits/runs/1b2c"' in shown
    assert "javascript:alert(7)" in shown
    assert 'href="javascript' not in shown
    assert [job["tracked_run"] for job in status_document(tracked)["jobs"]] == [*runs[:2], None]
    assert "Tracked runs" not in app_page(state())


def test_health_and_s_by_level_are_shown():
    levels = (
        LevelSlowdown(level="slot", factor=1.0, intervals=50, spread=0.01),
        LevelSlowdown(level="rack", factor=1.25),
    )
    ill = state(Path("nowhere"), row("job-0", slowdown=levels, health=HOSTILE), row("job-1"))
    shown = app_page(ill)
    assert "1 measured by 50 intervals" in shown
    assert "1.25 estimated" in shown
    assert HOSTILE not in shown
    assert "<span>WAITING</span>: &lt;script" in shown
    assert "Not measured yet." in app_page(state())
    first, second = status_document(ill)["jobs"]
    assert first["slowdown"]["rack"] == {"factor": 1.25, "intervals": 0, "spread": 0.0}
    assert (first["health"], second["health"]) == (HOSTILE, None)
