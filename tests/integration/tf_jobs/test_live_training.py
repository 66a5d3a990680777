"""Real training under a real ResourceManager: dead workers, resizes, a script made elastic, and one left as it is."""

import importlib.util
import re
import sys

import pytest
from documents import block
from elastic_script import PAGE, documented_script
from live_themis import live_themis, until

from am.checkpoints import open_store

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("real training needs the extra 'tf'", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

LOSS = re.compile(r"^INFO:tensorflow:loss = (\S+), step = (\d+)", re.MULTILINE)
STEP = re.compile(r"^INFO:tensorflow:loss = \S+, step = (\d+)", re.MULTILINE)
GANG = """\
name: gang
program: text_transformer
arguments: {log_every: 1, hidden: 32, dropout: 0.1}
job: {tasks: 2, min_tasks: 2, iterations: 240}
checkpoint_every: 40
resources: {memory_mb: 2048}
"""
OTHER = """\
name: other
program: replay
arguments: {serial_iteration_s: 0.2}
job: {iterations: 1000000}
resources: {memory_mb: 512}
"""
PLAIN = ["job", "run", "--name", "plain", "--input_path", ".", "--worker_resources", "memory=2048M,vcores=1,gpu=1"]


def steps(log):
    return [int(step) for step in STEP.findall(log)]


def check_starts(history, target=None):
    """Each start goes on from something that was saved, and nothing that was saved is lost."""
    safe = 0
    for event in history:
        if event["event"] == "start":
            assert event["from_iteration"] == safe, history
        elif event["event"] != "validation":
            assert event["iteration"] >= safe, history
            safe = event["iteration"]
    assert target in (None, safe)


def test_a_dead_worker_ends_in_a_restart_from_the_checkpoint(tmp_path):
    (tmp_path / "gang.yaml").write_text(GANG)
    with live_themis(tmp_path) as themis:
        app_id = themis.submarine("app", "submit", "gang.yaml").split()[0]
        until(lambda: max(steps(themis.log(app_id)), default=0) >= 100, "training has begun")
        themis.kill_task(app_id, 1)
        assert themis.ended(app_id) == "FINISHED"
        first, second = [event for event in themis.history(app_id) if event["event"] == "start"]
        assert first["from_iteration"] == 0
        assert second["from_iteration"] >= 80
        # From one of every forty iterations, or from where the other worker was when it was stopped.
        check_starts(themis.history(app_id), target=240)
        seen = {}
        for loss, step in LOSS.findall(themis.log(app_id)):
            assert float(loss) == pytest.approx(seen.setdefault(step, float(loss)), rel=1e-4), "repeated as it was"
        assert len(seen) == 240
        assert len(themis.events(app_id, "job_restarted")) == 1


def test_a_keras_script_with_five_changed_lines_survives_kill_and_resize(tmp_path):
    script, changes = documented_script()
    assert changes <= 5
    epochs = tmp_path / "epochs"
    epochs.write_text("100000")
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "keras.yaml").write_text(
        f"name: keras\ncommand: exec {sys.executable} {tmp_path}/train.py $(cat {epochs})\n"
        "job: {tasks: 2, min_tasks: 1, iterations: 1000000}\nresources: {memory_mb: 3072}\n"
    )
    (tmp_path / "other.yaml").write_text(OTHER)
    with live_themis(tmp_path, lease_s=15) as themis:
        app_id = themis.submarine("app", "submit", "keras.yaml").split()[0]
        until(lambda: max(steps(themis.log(app_id)), default=0) >= 220, "it trains on two tasks")
        themis.kill_task(app_id, 1)
        until(lambda: len([e for e in themis.history(app_id) if e["event"] == "start"]) == 2, "it trains again")
        seen = len(steps(themis.log(app_id)))
        until(lambda: len(steps(themis.log(app_id))) > seen, "it goes on")
        # The next start reads it, which is that of the resize.
        target = (max(steps(themis.log(app_id))) // 25 + 60) * 25
        epochs.write_text(str(target // 25))
        other = themis.submarine("app", "submit", "other.yaml").split()[0]

        def tasks():
            return [event["tasks"] for event in themis.history(app_id) if event["event"] == "start"]

        until(lambda: 1 in tasks()[2:], "it is resized")
        themis.client.kill(other)
        assert themis.ended(app_id) == "FINISHED"
        history = themis.history(app_id)
        assert tasks()[:2] == [2, 2]
        check_starts(history)
        assert [event["event"] for event in history][-2:] == ["end", "validation"]
        assert history[-1]["accuracy"] > 0.8
        assert (themis.job_folder(app_id) / "digits.keras").is_file()
        store = open_store(str(themis.client.show(app_id).folder) + "/checkpoints")
        assert store.latest_iteration("job-00") == history[-1]["iteration"] >= target


def test_a_plain_keras_script_is_followed_by_its_log_and_resumes_by_its_own_checkpoints(tmp_path):
    script = block(PAGE, "file: plain.py").body
    assert "themis" not in script
    assert script.count("callbacks=[backup]") == 1
    slow = "keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: __import__('time').sleep(0.5))"
    (tmp_path / "plain.py").write_text(script.replace("callbacks=[backup]", f"callbacks=[backup, {slow}]"))
    with live_themis(tmp_path) as themis:
        launch = f"exec {sys.executable} {tmp_path}/plain.py 12 %checkpoint_path%"
        flags = ["--worker_launch_cmd", launch, "--checkpoint_path", str(tmp_path / "model"), "--conf"]
        app_id = themis.submarine(*PLAIN, *flags, "themis.iterations=300").split()[0]
        until(lambda: "Epoch 5/12" in themis.log(app_id), "it trains")
        until(lambda: themis.client.show(app_id).jobs[0].iteration >= 75, "its progress is shown")
        themis.kill_task(app_id, 0)
        assert themis.ended(app_id) == "FINISHED"
        epochs = [int(epoch) for epoch in re.findall(r"^Epoch (\d+)/12", themis.log(app_id), re.MULTILINE)]
        assert epochs.count(1) == 1, "it went on from its own checkpoint"
        assert epochs[-1] == 12
        job = themis.client.show(app_id).jobs[0]
        assert (job.iteration, job.state) == (300, "FINISHED")
        assert 0.0 < job.loss < 1.0
        pace = [event["iteration_s"] for event in themis.events(app_id, "job_progress")]
        assert any(seconds is not None and 0.0 < seconds < 1.0 for seconds in pace), "its pace is known"
        assert themis.events(app_id, "validation")
