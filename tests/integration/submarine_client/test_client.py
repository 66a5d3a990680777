"""The client for programs and notebooks against a ResourceManager over gRPC."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_rm import FakeRm
from msgspec.structs import replace

from submarine_client import App, AppFailedError, Client, Interval, Waiting
from submarine_client.groups import load_app
from themis.errors import InputError, UnreachableError
from themis.wire import themis_pb2 as pb

SEARCH = "replay-search"
JOBS = [
    pb.JobStatus(
        job_id=f"job-{number:02d}",
        state="FINISHED",
        iteration=100,
        target_iteration=100,
        loss=0.5 / (number + 1),
        has_loss=number > 0,
        hyper_parameters={"learning_rate": pb.Scalar(number=0.1 * number)},
    )
    for number in range(3)
]


@pytest.fixture
def rm(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRm]:
    fake = FakeRm()
    monkeypatch.setenv("THEMIS_RM", fake.address)
    yield fake
    fake.stop()


@pytest.fixture
def ended(rm: FakeRm) -> App:
    rm.service.add("a-1", "FINISHED", name="digits", jobs=JOBS, best="job-02", best_checkpoint="/c/job-02/100")
    return Client().app("digits")


def test_an_app_is_submitted_and_waited_for(rm: FakeRm) -> None:
    rm.service.then = ["SUBMITTED", "RUNNING", "FINISHED"]
    with Client() as client:
        app = client.submit(SEARCH)
        assert (app.app_id, app.name, app.state) == ("app-0001", "replay-search", "SUBMITTED")
        assert app.wait(poll_s=0.01).state == "FINISHED"
    assert len(rm.service.submitted[0].jobs) == 8


def test_an_app_that_fails_raises_with_its_reason(rm: FakeRm) -> None:
    rm.service.add("a-1", "RUNNING", "FAILED", diagnostics="no module named torch")
    app = Client().app("a-1")
    with pytest.raises(AppFailedError, match=r"a-1 is FAILED.*no module named torch"):
        app.wait(poll_s=0.01)
    assert app.wait(check=False).state == "FAILED"


def test_waiting_has_a_limit(rm: FakeRm) -> None:
    rm.service.add("a-1", "RUNNING", gpus=0)
    with pytest.raises(TimeoutError, match="a-1 has not ended: WAITING"):
        Client().app("a-1").wait(0.05, poll_s=0.01)


def test_several_apps_are_waited_for_in_one_event_loop(rm: FakeRm) -> None:
    for number in range(3):
        rm.service.add(f"a-{number}", "RUNNING", "RUNNING", "FINISHED")

    async def wait_for_all(client: Client) -> list[App]:
        return await asyncio.gather(*(client.app(f"a-{number}").wait_async(poll_s=0.01) for number in range(3)))

    assert [app.state for app in asyncio.run(wait_for_all(Client()))] == ["FINISHED"] * 3


def test_the_best_job_has_the_checkpoint(ended: App) -> None:
    assert ended.best is not None
    assert (ended.best.job_id, ended.best.checkpoint) == ("job-02", "/c/job-02/100")
    assert [job.checkpoint for job in ended.jobs] == [None, None, "/c/job-02/100"]
    assert (len(ended.jobs), ended.jobs[0].loss, ended.jobs[-1].hyper_parameters) == (3, None, {"learning_rate": 0.2})
    assert [job.job_id for job in ended.jobs[1:]] == ["job-01", "job-02"]


def test_jobs_become_a_table_with_a_column_per_hyper_parameter(ended: App) -> None:
    frame = ended.jobs.to_pandas()
    assert list(frame.index) == ["job-00", "job-01", "job-02"]
    assert frame.loc["job-01", "learning_rate"] == 0.1
    assert frame["loss"].idxmin() == "job-02"
    assert frame["loss"].isna().tolist() == [True, False, False]


def test_a_declared_metric_names_its_column_of_the_table(rm: FakeRm) -> None:
    for number, name in enumerate(("mIoU", "accuracy")):
        rm.service.add(
            f"a-{number}", "FINISHED", jobs=JOBS, spec=pb.AppSpec(metric=pb.MetricSpec(name=name, mode="max"))
        )
        frame = Client().app(f"a-{number}").jobs[1:].to_pandas()
        assert "loss" not in frame.columns
        assert frame.columns.is_unique and frame[name].tolist() == [0.25, 0.5 / 3]


def test_an_app_says_why_it_waits_and_when_it_ends(rm: FakeRm) -> None:
    rm.service.add(
        "a-1",
        "RUNNING",
        rho=1.5,
        waiting=pb.AppWaiting(reason="no GPU is free", rank=2, of=5),
        estimate=pb.AppEstimate(
            first_gpu_s=pb.Seconds(median=60.0, low=0.0, high=120.0),
            end_s=pb.Seconds(median=math.inf, low=math.inf, high=math.inf),
        ),
    )
    app = Client().app("a-1")
    assert app.rho == 1.5
    assert app.waiting == Waiting(reason="no GPU is free", rank=2, of=5)
    assert app.estimate is not None
    assert app.estimate.first_gpu_s == Interval(median=60.0, low=0.0, high=120.0)
    assert app.estimate.end_s.median == math.inf


def test_what_is_not_known_of_an_app_is_none(ended: App) -> None:
    assert (ended.rho, ended.waiting, ended.estimate) == (None, None, None)


def test_an_app_is_submitted_again_without_checkpoints(rm: FakeRm) -> None:
    rm.service.then = ["FAILED"]
    spec = load_app(SEARCH)
    spec = replace(spec, program=replace(spec.program, environment={"TOKEN": "s3"}))
    app = asyncio.run(Client().submit_async(spec))
    assert asyncio.run(app.refresh_async()) is app
    assert (app.app_id, app.resubmit().app_id) == ("app-0001", "app-0002")
    assert rm.service.submitted[0] == rm.service.submitted[1]
    rm.service.add("a-1", "FAILED", user="eve")
    with pytest.raises(InputError, match="a-1 is not yours"):
        Client().app("a-1").resubmit()


def test_a_table_without_pandas_names_the_extra(ended: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"needs pandas.*themis-scheduler\[notebook\]"):
        ended.jobs.to_pandas()


def test_a_notebook_shows_an_app_as_text_that_is_no_html(rm: FakeRm) -> None:
    rm.service.add("a-1", "RUNNING", name="<b>digits</b>")
    shown = Client().app("a-1")._repr_html_()
    assert shown.startswith("<pre>App:") and "&lt;b&gt;digits" in shown


def test_apps_are_listed_newest_first_and_killed(rm: FakeRm) -> None:
    for number in range(4):
        rm.service.add(f"a-{number}", "RUNNING", user="bob" if number else "eve", submitted_at_s=float(number))
    client = Client()
    assert [app.app_id for app in client.apps(users=["bob"], limit=2)] == ["a-3", "a-2"]
    client.app("a-2").kill("enough")
    assert rm.service.killed == [("a-2", "enough")]


def test_logs_and_events_are_read_from_an_app(ended: App, rm: FakeRm) -> None:
    rm.service.chunks = [pb.LogChunk(source="job-00/task-0", text="one\n"), pb.LogChunk(source="am", text="two\n")]
    assert list(ended.logs("job-00", tail=5)) == ["one\n", "two\n"]
    assert (rm.service.log_requests[0].job_id, rm.service.log_requests[0].tail_lines) == ("job-00", 5)
    assert [event["kind"] for event in ended.events()] == ["app_state"] * 3


def test_logs_and_kills_run_beside_an_event_loop(ended: App, rm: FakeRm) -> None:
    """docs/reference/python-client.md: methods without a coroutine run in threads."""
    rm.service.chunks = [pb.LogChunk(source="am", text="one\n")]

    async def scenario() -> list[str]:
        await asyncio.to_thread(ended.kill)
        return await asyncio.to_thread(list, ended.logs())

    assert asyncio.run(scenario()) == ["one\n"]
    assert len(rm.service.killed) == 1


def test_bad_input_raises_with_its_remedy(rm: FakeRm, tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("name: a\nprogram: digits_cn\njob: {iterations: 1}\n")
    with pytest.raises(InputError, match="digits_cnn"):
        Client().submit(path)
    with pytest.raises(InputError, match="HOST:PORT"):
        Client("nowhere")
    with pytest.raises(UnreachableError):
        Client("127.0.0.1:1").app("a-1")
