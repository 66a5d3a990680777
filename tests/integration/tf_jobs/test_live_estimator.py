"""An Estimator-style script that knows nothing of us: followed by its log alone, resumed from its own model_dir."""

import importlib.util
import re
import sys

import pytest
from documents import block
from elastic_script import PAGE
from live_themis import live_themis, until

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("real training needs the extra 'tf'", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

STEPS = 5000
"""Far more than it makes in a lease at the slow pace of its first start."""
OTHER = """\
name: other
program: replay
arguments: {serial_iteration_s: 0.2}
job: {iterations: 50}
resources: {memory_mb: 512}
"""
SUBMIT = ["job", "run", "--name", "estimator", "--input_path", ".", "--worker_resources", "memory=2G,vcores=1,gpu=1"]
RESTORED = re.compile(r"^INFO:tensorflow:Restoring parameters from \S+/model\.ckpt-(\d+)$", re.MULTILINE)
SAVED = re.compile(r"^INFO:tensorflow:Saving checkpoints for (\d+) into", re.MULTILINE)


def test_an_estimator_style_script_loses_its_lease_and_resumes_from_its_own_model_dir(tmp_path):
    script = block(PAGE, "file: estimator.py").body
    assert "themis" not in script
    assert script.count("session.run(train)") == 1
    seen = tmp_path / "seen"
    slow = f"session.run(train), __import__('os').path.exists({str(seen)!r}) or __import__('time').sleep(0.02)"
    (tmp_path / "estimator.py").write_text(script.replace("session.run(train)", slow))
    (tmp_path / "other.yaml").write_text(OTHER)
    with live_themis(tmp_path, lease_s=15, gpus=1) as themis:
        launch = f"exec {sys.executable} {tmp_path}/estimator.py {STEPS} %checkpoint_path%"
        flags = ["--worker_launch_cmd", launch, "--checkpoint_path", str(tmp_path / "model"), "--conf"]
        app_id = themis.submarine(*SUBMIT, *flags, f"themis.iterations={STEPS}").split()[0]
        until(lambda: shown_iteration(themis, app_id) >= 200, "its progress is shown")
        other = themis.submarine("app", "submit", "other.yaml").split()[0]
        until(lambda: themis.events(app_id, "tasks_ended"), "the one GPU goes to the other app")
        seen.touch()
        (stopped, *_) = themis.events(app_id, "tasks_ended")
        assert stopped["requested"], "by the end of its lease, not by itself"
        saved = max(map(int, SAVED.findall(themis.log(app_id))))
        assert themis.ended(other) == themis.ended(app_id) == "FINISHED"
        check_resumed(themis, app_id, saved)


def shown_iteration(themis, app_id):
    return max((job.iteration for job in themis.client.show(app_id).jobs), default=0)


def check_resumed(themis, app_id, saved):
    log = themis.log(app_id)
    assert RESTORED.findall(log)[:1] == [str(saved)], "it went on from its own checkpoint"
    assert log.count("step = 0\n") == 1, "once from the beginning"
    assert len(themis.events(app_id, "tasks_started")) >= 2
    assert not themis.events(app_id, "job_restarted"), "a lease that ends is no failure"
    job = themis.client.show(app_id).jobs[0]
    assert (job.iteration, job.state) == (STEPS, "FINISHED")
    assert 0.0 < job.loss < 0.5
    reported = [(event["incarnation"], event["iteration"]) for event in themis.events(app_id, "job_progress")]
    assert reported == sorted(reported), "no incarnation runs backwards"
    again = [iteration for incarnation, iteration in reported if incarnation > 1]
    assert again, "the second one is followed too"
    assert min(again) >= saved, "it begins at the checkpoint, below what the first had reached and lost"
    pace = [event["iteration_s"] for event in themis.events(app_id, "job_progress")]
    assert any(seconds is not None and 0.02 <= seconds < 0.2 for seconds in pace), "its pace is known"
