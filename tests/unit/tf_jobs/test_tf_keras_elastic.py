"""A Keras script of one's own, before it comes to TensorFlow."""

import os
import subprocess
import sys

import pytest

SCRIPT = "from tf_jobs.keras_elastic import join; join(); print('joined')"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"THEMIS_TASKS": "two"}, "THEMIS_TASKS is not a whole number"),
        ({"THEMIS_TASKS": "2"}, "several tasks need THEMIS_CHECKPOINT_URI"),
        ({"THEMIS_TASK_INDEX": "1"}, "THEMIS_TASK_INDEX is not below THEMIS_TASKS"),
    ],
)
def test_an_environment_that_cannot_be_used_is_one_line_and_exit_2(environment, message):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | environment, capture_output=True, text=True, timeout=20
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("ERROR:themis:")
    assert message in line


def test_importing_it_loads_no_tensorflow():
    code = "import sys, tf_jobs.keras_elastic; print([m for m in ('keras', 'tensorflow', 'numpy') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
