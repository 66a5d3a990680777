"""The replay job as a process: pace, logs, checkpoints, stops, resizes."""

import io
import os
import re
import subprocess
import sys
import time

import pytest
from replay_gang import FAST, ReplayJob, ask_to_stop, finish, until_training

from am.checkpoints import open_store
from tf_jobs.catalog import program
from tf_jobs.context import read_context
from tf_jobs.emulation import Emulation
from tf_jobs.flags import parse
from tf_jobs.logs import TrainingLog
from tf_jobs.pace import Pace
from tf_jobs.recorder import Recorder
from tf_jobs.replay_job import main
from tf_jobs.tables_reader import nearest_curve
from tf_jobs.waiting import StopAsked


@pytest.fixture
def job(tmp_path):
    job = ReplayJob(tmp_path)
    yield job
    job.kill_all()


def test_a_run_to_the_end_keeps_its_pace(job):
    flags = ("--iterations", "200", "--serial_iteration_s", "2", "--slowdown", "1,1,2,4", "--log_every", "100")
    begun_s = time.monotonic()
    codes, (log,) = finish(job.start(*flags, gpus="m0:2,m1:2", level="rack"))
    took_s = time.monotonic() - begun_s
    assert codes == [0]
    assert took_s > 0.95, "200 iterations of 2 s x S of 2 / 4 GPUs, 200 times faster"
    lines = log.splitlines()
    assert lines[0] == "INFO:themis:replay model = resnet50, emulated, time_scale = 200"
    assert re.fullmatch(r"INFO:tensorflow:loss = [0-9.]+, step = 1", lines[1])
    assert re.findall(r"step = (\d+) \(\d+\.\d+ sec\)", log) == ["100", "200"]
    speeds = [float(speed) for speed in re.findall(r"global_step/sec: ([0-9.]+)", log)]
    assert speeds == pytest.approx([200, 200], rel=0.04)
    assert re.match(r"INFO:tensorflow:Validation \(step 200\): loss = [0-9.]+, global_step = 200, acc", lines[-1])
    assert job.store.latest("j").iteration == 200


def test_log_lines_are_at_multiples_and_a_quarter_second_apart_or_more(job):
    flags = ("--iterations", "101", "--serial_iteration_s", "1", "--slowdown", "1,1,1,1", "--log_every", "3")
    _, (log,) = finish(job.start(*flags))
    lines = re.findall(r"step = (\d+) \((\d+\.\d+) sec\)", log)
    assert lines
    assert all(int(step) % 3 == 0 and float(seconds) > 0.24 for step, seconds in lines)


def test_a_slow_job_logs_by_time_where_that_is_asked_for(job):
    """A hundredth of a second an iteration: 50 to a line by `log_every`, 30 in the 0.3 s that a line may take."""
    slow = ("--iterations", "120", "--serial_iteration_s", "2", "--slowdown", "1,1,1,1", "--log_every_s", "0.3")
    _, (log,) = finish(job.start(*slow, "--log_every", "50"))
    assert re.findall(r"step = (\d+) \(", log) == ["30", "60", "90", "120"]
    _, (log,) = finish(job.start("--iterations", "170", *slow[2:], "--log_every", "20"))
    assert re.findall(r"step = (\d+) \(", log) == ["160"], "no more seldom than by iterations"


def test_a_stop_keeps_exactly_the_iterations_done_and_a_resume_goes_on(job):
    asleep = ("--serial_iteration_s", "1", "--log_every", "10000", "--checkpoint_every", "10000")
    tasks = job.start("--iterations", "100000", *asleep)
    begun_s = time.monotonic()
    until_training(tasks)
    time.sleep(0.5)
    ask_to_stop(tasks[0])
    codes, _ = finish(tasks)
    ran_s = time.monotonic() - begun_s
    assert codes == [75]
    stopped = job.events()[-1]
    assert stopped["event"] == "stop"
    assert 0 < stopped["iteration"] <= 1.03 * 200 * ran_s, "200 a second at most"
    assert job.store.latest("j").iteration == stopped["iteration"]
    codes, (log,) = finish(job.start("--iterations", str(stopped["iteration"] + 40), *FAST))
    assert codes == [0]
    assert f"INFO:themis:restored iteration = {stopped['iteration']}, seconds" in log
    assert f"step = {stopped['iteration'] + 1}\n" in log
    assert [e["from_iteration"] for e in job.events() if e["event"] == "start"] == [0, stopped["iteration"]]


def test_a_kill_goes_on_from_the_last_checkpoint(job):
    flags = ("--iterations", "100000", "--serial_iteration_s", "1", "--checkpoint_every", "10", "--log_every", "1000")
    tasks = job.start(*flags)
    deadline_s = time.monotonic() + 60
    while job.store.latest_iteration("j") is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    tasks[0].kill()
    finish(tasks)
    kept = job.store.latest_iteration("j")
    assert kept
    assert kept % 10 == 0
    finish(job.start("--iterations", str(kept), *FAST))
    assert job.events()[-2]["iteration"] == kept


def test_a_corrupt_checkpoint_is_passed_over(job):
    finish(job.start("--iterations", "10", *FAST))
    finish(job.start("--iterations", "20", *FAST))
    (job.folder / "ck" / "j" / f"{20:012d}" / "padding.bin").write_bytes(b"x")
    codes, (log,) = finish(job.start("--iterations", "20", *FAST))
    assert codes == [0]
    assert "restored iteration = 10," in log
    assert job.store.latest("j").iteration == 20


def test_a_stop_during_start_up_ends_at_once(job):
    tasks = job.start("--iterations", "100000", *FAST, "--startup_s", "100000")
    tasks[0].stderr.readline()
    ask_to_stop(tasks[0])
    codes, _ = finish(tasks, timeout_s=60)
    assert codes == [75]
    assert job.store.latest("j") is None


class NoWaiting:
    """Notes until when the emulation would have slept, and asks for a stop after some sleeps."""

    def __init__(self, stop_after=10**9):
        self.deadlines_s = []
        self._stop_after = stop_after

    def until(self, deadline_s):
        self.deadlines_s.append(deadline_s)
        if len(self.deadlines_s) > self._stop_after:
            raise StopAsked


def emulate(folder, waiting, *flags):
    context = read_context("replay", {"THEMIS_JOB_DIR": str(folder), "THEMIS_TIME_SCALE": "10"})
    values = parse(program("replay"), ["--iterations", "100", *flags])
    recorder = Recorder(context, 3, TrainingLog(io.StringIO()))
    pace = Pace(iteration_s=1.0, seed=0, start=0)
    curve = nearest_curve("digits_cnn", 0.1)
    return Emulation(values, context, recorder, pace, curve, waiting, {}).go(0)


def test_start_up_and_checkpoints_take_their_emulated_time(tmp_path):
    plain, slow = NoWaiting(), NoWaiting()
    begun_s = time.monotonic()
    assert emulate(tmp_path / "plain", plain, "--checkpoint_every", "30") == 0
    assert (
        emulate(tmp_path / "slow", slow, "--checkpoint_every", "30", "--checkpoint_s", "70", "--startup_s", "50") == 0
    )
    assert slow.deadlines_s[0] - begun_s == pytest.approx(5.0, abs=1.0)
    assert slow.deadlines_s[-1] - plain.deadlines_s[-1] == pytest.approx(3 * 7.0, abs=1.0)


def test_an_emulated_stop_before_time_has_passed_saves_nothing(tmp_path):
    assert emulate(tmp_path, NoWaiting(stop_after=1)) == 75
    assert open_store(str(tmp_path / "checkpoints")).latest("replay") is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--iteration", "5"), "did you mean '--iterations'"),
        (("--iterations", "5", "--model", "resnet5"), "did you mean 'resnet50'"),
        (("--iterations", "5", "--slowdown", "3,2,1,1"), "--slowdown does not parse"),
        (("--iterations", "5", "--checkpoint_uri", "ftp://x"), "unknown scheme"),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.setenv("THEMIS_JOB_DIR", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        main(flags)
    assert ended.value.code == 2
    log = capsys.readouterr().err
    assert message in log
    assert len(log.splitlines()) == 1


def test_it_loads_neither_numpy_nor_tensorflow():
    code = "import sys, tf_jobs.replay_job; print([m for m in ('numpy', 'tensorflow', 'shutil') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_an_idle_job_hardly_uses_the_processor(job):
    tasks = job.start("--iterations", "100000", *FAST)
    tasks[0].stderr.readline()
    clock_ticks = os.sysconf("SC_CLK_TCK")

    def used_s():
        with open(f"/proc/{tasks[0].pid}/stat") as stream:  # noqa: PTH123
            fields = stream.read().split()
        return (int(fields[13]) + int(fields[14])) / clock_ticks

    def used_in_a_while_s():
        before_s = used_s()
        time.sleep(0.3)
        return used_s() - before_s

    # The least of a few: it may not yet have begun, and on a busy machine all takes longer.
    used = min(used_in_a_while_s() for _ in range(3))
    tasks[0].kill()
    finish(tasks)
    assert used <= 0.05
