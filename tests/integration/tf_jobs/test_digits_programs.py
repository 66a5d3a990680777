"""The real programs as processes: their curves, and what kills, stops and resizes do to them."""

import importlib.util
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from free_ports import free_port

from am.checkpoints import open_store

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("the real programs need the extra 'tf'", allow_module_level=True)
pytestmark = pytest.mark.timeout(600)

WAIT_S = 120
LOSS = re.compile(r"INFO:tensorflow:loss = (\S+), step = (\d+)")


class Job:
    """Starts the tasks of a digits job as on machines of their own: each start of each task has its own folder.

    Task i listens on 127.0.0.(i + 1).
    """

    def __init__(self, folder: Path, program: str) -> None:
        self.folder = folder
        self.incarnation = 0
        self.store = open_store(str(folder / "ck"))
        self._program = program

    def start(self, *flags: str, tasks: int = 1) -> list[subprocess.Popen]:
        self.incarnation += 1
        workers = [f"{host}:{free_port(host)}" for host in (f"127.0.0.{i + 1}" for i in range(tasks))]
        return [self._task(index, workers, flags) for index in range(tasks)]

    def _task(self, index, workers, flags):
        environment = os.environ | {
            "THEMIS_JOB_ID": "j",
            "THEMIS_TASK_INDEX": str(index),
            "THEMIS_TASKS": str(len(workers)),
            "THEMIS_INCARNATION": str(self.incarnation),
            "THEMIS_CHECKPOINT_URI": str(self.folder / "ck"),
            "THEMIS_JOB_DIR": str(self.job_dir(self.incarnation, index)),
            "CUDA_VISIBLE_DEVICES": "",
        }
        if len(workers) > 1:
            task = {"type": "worker", "index": index}
            environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
        with self.log_path(index).open("w") as log:
            command = [sys.executable, "-m", f"tf_jobs.{self._program}", *flags]
            return subprocess.Popen(command, env=environment, stderr=log)

    def log_path(self, index: int = 0) -> Path:
        return self.folder / f"log.{self.incarnation}.{index}"

    def log(self, index: int = 0) -> str:
        return self.log_path(index).read_text()

    def losses(self) -> dict[int, float]:
        return {int(step): float(loss) for loss, step in LOSS.findall(self.log())}

    def until_step(self, step: int) -> None:
        until(lambda: max(self.losses(), default=0) >= step, self.log)

    def job_dir(self, incarnation: int, index: int = 0) -> Path:
        return self.folder / f"start-{incarnation}-task-{index}"

    def events(self) -> list[dict]:
        """What the chiefs of all incarnations noted."""
        paths = [self.job_dir(incarnation) / "history.jsonl" for incarnation in range(1, self.incarnation + 1)]
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def until(condition, log):
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, log()
        time.sleep(0.05)


def cpu_of_ended_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def finish(tasks, timeout_s=WAIT_S):
    try:
        return [task.wait(timeout_s) for task in tasks]
    finally:
        for task in tasks:
            task.kill()
            task.wait()


def make_job(folder: Path, program: str) -> Job:
    folder.mkdir()
    return Job(folder, program)


def test_the_convolutional_net_learns_and_logs_its_losses(tmp_path):
    job = make_job(tmp_path / "j", "digits_cnn")
    assert finish(job.start("--iterations", "150")) == [0]
    losses = job.losses()
    assert list(losses) == [1, 20, 40, 60, 80, 100, 120, 140]
    assert losses[1] > 2.0 > 0.3 > losses[140]
    accuracy = re.search(r"Validation \(step 150\): .* accuracy = (\S+)$", job.log(), re.MULTILINE)
    assert float(accuracy[1]) > 0.9
    assert job.store.latest("j").iteration == 150
    assert all(line.startswith(("INFO:tensorflow:", "INFO:themis:")) for line in job.log().splitlines())


def test_stopped_resumed_and_resized_equals_undisturbed(tmp_path):
    """1 worker, stop; 2 workers, stop by one of them; 1, stop; 2 to the end: the same losses, each step once."""
    flags = [
        "--log_every",
        "1",
        "--dropout",
        "0.3",
        "--optimizer",
        "adam",
        "--learning_rate",
        "0.003",
    ]
    disturbed = make_job(tmp_path / "disturbed", "digits_lstm")
    seen: list[tuple[int, float]] = []
    for tasks, stop_at, victim in ((1, 40, 0), (2, 80, 1), (1, 120, 0)):
        running = disturbed.start("--iterations", "1000000", *flags, tasks=tasks)
        disturbed.until_step(stop_at)
        running[victim].send_signal(signal.SIGTERM)
        assert finish(running) == [75] * tasks, disturbed.log()
        assert all(disturbed.log(index) == "" for index in range(1, tasks))
        seen += disturbed.losses().items()
    last = seen[-1][0] + 20
    assert finish(disturbed.start("--iterations", str(last), *flags, tasks=2)) == [0, 0]
    seen += disturbed.losses().items()

    undisturbed = make_job(tmp_path / "undisturbed", "digits_lstm")
    assert finish(undisturbed.start("--iterations", str(last), *flags)) == [0]
    expected = undisturbed.losses()
    assert [step for step, _ in seen] == list(range(1, last + 1)), "a step was lost or repeated"
    assert [loss for _, loss in seen] == pytest.approx(list(expected.values()), abs=2e-4, rel=2e-3)
    starts = [e["from_iteration"] for e in disturbed.events() if e["event"] == "start"]
    stops = [e["iteration"] for e in disturbed.events() if e["event"] == "stop"]
    assert starts == [0, *stops]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_worker_fails_the_other_within_seconds(tmp_path, victim):
    job = make_job(tmp_path / "j", "digits_dense")
    tasks = job.start("--iterations", "1000000", tasks=2)
    job.until_step(20)
    tasks[victim].kill()
    assert tasks[1 - victim].wait(100) not in (0, 2, 75)
    finish(tasks)


def test_a_stop_during_start_up_ends_at_once_and_saves_nothing(tmp_path):
    job = make_job(tmp_path / "j", "digits_dense")
    reaped_s = cpu_of_ended_children_s()
    (task,) = job.start("--iterations", "1000000")
    until(lambda: b"libtensorflow" in Path(f"/proc/{task.pid}/maps").read_bytes(), job.log)
    used_s = sum(psutil.Process(task.pid).cpu_times()[:2])
    task.send_signal(signal.SIGTERM)
    assert finish([task]) == [75]
    assert cpu_of_ended_children_s() - reaped_s - used_s < 1.0, "it went on with its start"
    assert job.store.latest("j") is None


def test_a_corrupt_checkpoint_is_skipped_and_another_model_refused(tmp_path):
    job = make_job(tmp_path / "j", "digits_lstm")
    flags = ("--hidden", "16", "--log_every", "1")
    assert finish(job.start("--iterations", "200", "--checkpoint_every", "100", *flags)) == [0]
    first = job.losses()
    with (job.folder / "ck" / "j" / f"{200:012d}" / "state.npz").open("r+b") as stream:
        stream.seek(200)
        stream.write(b"corrupt")
    assert finish(job.start("--iterations", "200", *flags)) == [0]
    assert "INFO:themis:restored iteration = 100," in job.log()
    # Written while training went on, yet of one moment.
    assert [job.losses()[step] for step in range(101, 201)] == pytest.approx([first[s] for s in range(101, 201)])
    assert finish(job.start("--iterations", "300", "--hidden", "17")) == [2]
    assert "hidden = 16, this run has: 17" in job.log()
    reported = [line for line in job.log().splitlines() if not line.startswith("INFO:themis:imported")]
    assert len(reported) == 1


def test_a_diverging_run_says_nan_and_goes_on(tmp_path):
    job = make_job(tmp_path / "j", "digits_dense")
    assert finish(job.start("--iterations", "120", "--learning_rate", "1e30", "--optimizer", "sgd")) == [0]
    assert "INFO:tensorflow:loss = nan, step = 120" in job.log()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--iterations", "5", "--learning_rat", "1"], "did you mean '--learning_rate'"),
        (["--iterations", "5", "--optimizer", "adma"], "did you mean 'adam'"),
        (["--iterations", "x"], "takes a whole number"),
    ],
)
def test_bad_flags_are_one_line_and_exit_2_without_loading_tensorflow(tmp_path, monkeypatch, flags, message):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('TensorFlow was loaded')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    job = make_job(tmp_path / "j", "digits_dense")
    assert finish(job.start(*flags)) == [2]
    assert message in job.log()
    assert len(job.log().splitlines()) == 1
