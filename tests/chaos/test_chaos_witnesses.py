"""The plan of a chaos run repeats by its seed, and its witnesses see what they are there to see."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter

import pytest
from fault_plan import KILLS, OUTAGES, fault_plan
from job_witness import broken_rules
from process_witness import TICKS, ProcessWitness, Seen


def test_same_seed_gives_the_same_plan():
    plan = fault_plan(7, 30, 10, 2.0)
    assert plan == fault_plan(7, 30, 10, 2.0)
    assert plan != fault_plan(8, 30, 10, 2.0)
    assert sum(fault.is_kill for fault in plan) == 30
    assert Counter(fault.kind for fault in plan if not fault.is_kill) == dict.fromkeys(OUTAGES, 2)
    assert {fault.kind for fault in fault_plan(7, 300, 0, 2.0)} == set(KILLS)


MASTER = (sys.executable, "-c", "import time; time.sleep(60)", "am.main")


class Machine:
    """A run with processes that only sleep."""

    def __init__(self):
        self.witness = ProcessWitness(uuid.uuid4().hex)
        self.processes = []

    def start(self, app="app-1", job="", incarnation="1", cards="", command=MASTER):
        marks = {"THEMIS_RUN_ID": self.witness.run_id, "THEMIS_APP_ID": app}
        if job:
            marks |= {"THEMIS_JOB_ID": job, "THEMIS_INCARNATION": incarnation, "THEMIS_TASK_INDEX": "0"}
        environment = {**os.environ, **marks, "CUDA_VISIBLE_DEVICES": cards}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        self.processes.append(process)
        self.until(lambda: any(self._is_clearly_alive(each, process.pid) for each in self.witness.living()))
        return process

    def _is_clearly_alive(self, seen, pid):
        """Whether it was seen more than a tick after its start: an overlap of less is none."""
        return seen.pid == pid and seen.last_seen_s > seen.started_s + 1 / TICKS

    def kill(self, process):
        process.kill()
        process.wait()
        self.witness.living()

    def until(self, condition):
        deadline_s = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


@pytest.fixture
def machine():
    made = Machine()
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def test_two_tasks_with_one_card_are_seen(machine):
    machine.start(job="job-1", cards="0,1")
    machine.start(app="app-2", job="job-1", cards="2")
    assert machine.witness.double_uses() == []
    machine.start(app="app-2", job="job-2", cards="1")
    (found,) = machine.witness.double_uses()
    assert "GPU 1" in found


def test_two_incarnations_of_a_job_on_one_card_are_seen(machine):
    machine.start(job="job-1", cards="0")
    machine.start(job="job-1", cards="0", incarnation="2")
    assert len(machine.witness.double_uses()) == 1


def test_tasks_that_follow_each_other_on_a_card_are_in_order(machine):
    machine.kill(machine.start(job="job-1", cards="0"))
    machine.start(app="app-2", job="job-1", cards="0")
    assert machine.witness.double_uses() == []


def test_overlap_between_two_looks_is_seen(machine):
    """The first process ended before the second was looked at, but it was seen after the second's start."""
    first = machine.start(job="job-1", cards="0")
    second = machine.start(job="job-2", cards="0")
    machine.kill(first)
    machine.kill(second)
    assert machine.witness.living() == []
    assert len(machine.witness.double_uses()) == 1


def test_two_app_masters_of_an_app_are_seen(machine):
    machine.start()
    machine.start(app="app-2")
    assert machine.witness.double_uses() == []
    machine.start()
    assert len(machine.witness.double_uses()) == 1
    assert len(machine.witness.double_uses(masters_overlap_s=5.0)) == 0


def test_task_that_outlives_its_app_master_is_an_orphan(machine):
    task = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    parent = machine.start(job="job-1", command=(sys.executable, "-c", task))
    machine.until(lambda: len(machine.witness.living()) == 2)
    machine.kill(parent)
    (child,) = machine.witness.living()
    try:
        time.sleep(0.3)
        machine.witness.living()
        assert len(machine.witness.orphans(0.2)) == 1
        assert machine.witness.orphans(5.0) == []
    finally:
        os.kill(child.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("masters_s", "tasks_s", "ran"),
    [([10.0], [12.0], True), ([10.0, 20.0], [12.0], False), ([10.0, 20.0], [12.0, 22.0], True), ([], [12.0], False)],
)
def test_app_ran_in_its_last_attempt_if_a_task_started_after_its_last_app_master(masters_s, tasks_s, ran):
    other = Seen(1, 30.0, ("app-2", "job-1"), frozenset(), 31.0)
    masters = [Seen(2, at_s, ("app-1",), frozenset(), at_s) for at_s in masters_s]
    tasks = [Seen(3, at_s, ("app-1", "job-1"), frozenset(), at_s) for at_s in tasks_s]
    witness = ProcessWitness("run", seen=[other, *tasks, *masters])
    assert witness.ran_in_last_attempt("app-1") is ran


class Job:
    """The files of a job of 50 iterations that saves every 10."""

    def __init__(self, tmp_path):
        self.folder = tmp_path / "apps/app-1/jobs/job-1"
        self.folder.mkdir(parents=True)
        self.history, self.log = [], []

    def incarnation(self, number, begun, *saved, seen, end="checkpoint", unsaved=False):
        self.history.append({"incarnation": number, "event": "start", "from_iteration": begun})
        self.log += ["INFO:themis:replay model = resnet50", f"INFO:themis:restored iteration = {begun}, seconds = 0.1"]
        self.log.append(f"loss = 1, step = {begun + 1}")
        for iteration in saved:
            self.history.append({"incarnation": number, "event": end, "iteration": iteration})
            self.log.append(f"INFO:tensorflow:Saving checkpoints for {iteration} into x.")
        self.log.append(f"loss = 1, step = {seen}")
        self.log += ["INFO:themis:unsaved iteration = 20, reason = full"] if unsaved else []

    def broken(self, **more):
        (self.folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.history))
        (self.folder / "task-0.log").write_text("".join(line + "\n" for line in self.log))
        return broken_rules(self.folder, 50, 20.0, **more)


def test_job_that_repeats_what_followed_its_last_checkpoint_keeps_the_rule(tmp_path):
    job = Job(tmp_path)
    job.incarnation(1, 0, 10, 20, seen=24)
    job.incarnation(2, 20, 30, 40, 50, seen=50)
    assert job.broken() == []


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ((2, 10, 20, 30, 40, 50), "began at iteration 10, though 20 was saved"),
        ((1, 20, 30, 40, 50), "incarnation 1 began after 1"),
        ((2, 20, 30, 40), "it finished with iteration 40 of 50 saved"),
    ],
)
def test_job_that_breaks_a_rule_is_reported(tmp_path, second, reason):
    job = Job(tmp_path)
    job.incarnation(1, 0, 10, 20, seen=24)
    job.incarnation(*second, seen=50)
    assert any(reason in text for text in job.broken())


def test_history_whose_end_is_lost_with_a_machine_is_made_up_for_by_the_newest_checkpoint(tmp_path):
    job = Job(tmp_path)
    job.incarnation(1, 0, 10, 20, seen=24)
    assert job.broken(saved=50) == []
    assert job.broken(saved=40) == ["app-1/job-1: it finished with iteration 40 of 50 saved"]


@pytest.mark.parametrize("unsaved", [False, True])
def test_iterations_done_twice_are_reported_unless_they_could_not_be_saved(tmp_path, unsaved):
    job = Job(tmp_path)
    job.incarnation(1, 0, 10, seen=40, unsaved=unsaved)
    job.incarnation(2, 10, 20, 30, 40, 50, seen=50)
    found = job.broken()
    assert found == ([] if unsaved else ["app-1/job-1: 30 iterations were done twice, from 10 to 40"])


def test_history_that_a_machine_took_with_it_counts_by_the_newest_checkpoint(tmp_path):
    assert broken_rules(tmp_path / "nowhere", 50, 20.0, saved=50) == []
    (text,) = broken_rules(tmp_path / "nowhere", 50, 20.0, saved=40)
    assert "has no history" in text
