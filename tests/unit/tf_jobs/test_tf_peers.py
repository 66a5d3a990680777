"""The tasks of a replay job as processes without a common folder: they start, stop, end and fail together."""

import json
import socket
import time

import pytest
from replay_gang import FAST, ReplayJob, ask_to_stop, finish, until_training

LONG = ("--iterations", "100000", *FAST)
SHORT = ("--iterations", "50", *FAST)


@pytest.fixture
def job(tmp_path):
    job = ReplayJob(tmp_path)
    yield job
    job.kill_all()


def test_tasks_start_and_end_together_and_only_the_chief_speaks(job):
    codes, outputs = finish(job.start(*SHORT, tasks=3))
    assert codes == [0, 0, 0]
    assert "step = 50" in outputs[0]
    assert outputs[1:] == ["", ""]


@pytest.mark.parametrize("stopped", [[0], [1], [2], [0, 1, 2]])
def test_a_stop_of_any_task_stops_all(job, stopped):
    tasks = job.start(*LONG, tasks=3)
    until_training(tasks)
    for index in stopped:
        ask_to_stop(tasks[index])
    codes, _ = finish(tasks)
    assert codes == [75, 75, 75]
    assert job.events()[-1]["event"] == "stop"
    assert job.store.latest("j").iteration == job.events()[-1]["iteration"] > 0


def test_a_stopped_gang_goes_on_with_another_number_of_tasks(job):
    for tasks in (3, 2):
        running = job.start(*LONG, tasks=tasks)
        until_training(running)
        time.sleep(0.1)
        ask_to_stop(running[1])
        assert finish(running)[0] == [75] * tasks
    stops = [event["iteration"] for event in job.events() if event["event"] == "stop"]
    assert finish(job.start("--iterations", str(stops[-1] + 20), *FAST))[0] == [0]
    starts = [event["from_iteration"] for event in job.events() if event["event"] == "start"]
    assert starts == [0, *stops]


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_task_fails_the_others_within_seconds(job, victim):
    tasks = job.start(*LONG, tasks=3)
    until_training(tasks)
    tasks[victim].kill()
    killed_s = time.monotonic()
    codes, outputs = finish(tasks)
    assert time.monotonic() - killed_s < 50.0
    for index in {0, 1, 2} - {victim}:
        assert codes[index] == 1
        assert outputs[index].endswith(f"another task of the job died: {victim}; restart the job\n")


@pytest.mark.parametrize("late", [0, 2])
def test_nothing_begins_before_a_late_task_has_come(job, late):
    job.prepare(3)
    tasks = {index: job.task(index, *SHORT) for index in (0, 1, 2) if index != late}
    time.sleep(0.7)
    assert all(task.poll() is None for task in tasks.values())
    assert not any(job.folder.rglob("history.jsonl"))
    tasks[late] = job.task(late, *SHORT)
    assert finish(tasks.values())[0] == [0, 0, 0]


def test_a_taken_port_is_an_error_of_the_chief_and_leaves_the_others_waiting(job):
    address = job.prepare(2)[0]
    host, _, port = address.partition(":")
    with socket.create_server((host, int(port))) as stranger:
        tasks = [job.task(index, *LONG) for index in (0, 1)]
        codes, outputs = finish(tasks[:1])
        assert codes == [1]
        error = outputs[0].splitlines()[-1]
        assert error.startswith(f"ERROR:themis:replay: the chief cannot listen to its peers: {address!r}")
        assert "Address already in use" in error
        connected, _ = stranger.accept()
        with connected:
            connected.sendall(b'{"say": "end", "code": 0}\nHTTP/1.1 400 Bad Request\r\n\r\n')
            time.sleep(0.3)
            assert tasks[1].poll() is None
        ask_to_stop(tasks[1])
        assert finish(tasks[1:]) == ([75], [""])


def test_a_task_of_an_older_incarnation_or_another_job_is_refused_and_does_no_harm(job):
    job.prepare(2)
    chief = job.task(0, *LONG)
    job.task(1, *LONG, THEMIS_INCARNATION="7")
    job.task(1, *LONG, THEMIS_JOB_ID="other")
    job.task(1, *LONG, THEMIS_APP_ID="other")
    time.sleep(0.7)
    assert not any(job.folder.rglob("history.jsonl")), "nobody was taken for the missing task"
    tasks = [chief, job.task(1, *LONG)]
    until_training(tasks)
    for stray in job.started[1:4]:
        stray.kill()
    time.sleep(0.4)
    assert [task.poll() for task in tasks] == [None, None]


def test_a_stop_of_any_task_ends_the_wait_for_a_missing_one(job):
    host, _, port = job.prepare(3)[0].partition(":")
    chief = job.task(0, *LONG)
    deadline_s = time.monotonic() + 60
    while True:
        try:
            connected = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
    with connected, connected.makefile() as lines:
        connected.sendall(b'{"say": "hello", "app": "a", "job": "j", "incarnation": 1, "task": 1}\n{"say": "stop"}\n')
        assert [json.loads(line) for line in lines] == [{"say": "welcome"}, {"say": "end", "code": 75}]
    assert finish([chief])[0] == [75]
    assert job.store.latest("j") is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"TF_CONFIG": ""}, "several tasks need TF_CONFIG"),
        ({"THEMIS_CHECKPOINT_URI": ""}, "several tasks need THEMIS_CHECKPOINT_URI"),
    ],
)
def test_an_incomplete_environment_is_one_line_and_exit_2(job, changed, message):
    job.prepare(2)
    codes, (log,) = finish([job.task(1, *SHORT, **changed)])
    assert codes == [2]
    assert message in log
    assert len(log.splitlines()) == 1
