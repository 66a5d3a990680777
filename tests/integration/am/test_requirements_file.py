"""A task's environment from a requirements file: by a real pip, from a wheel beside the file and without a network."""

import os
import subprocess
import sys

import pytest
from travelling_code import write_wheel

from am.jobs.command import RunValues, job_command
from themis.apps import CodeArchive, JobShape, JobSpec, ProgramSpec

JOB = JobSpec(job_id="job-0", shape=JobShape(), iterations_total=1)
CODE = CodeArchive.of(b"packed")


@pytest.fixture
def code(tmp_path):
    """A folder of code whose requirements file names a wheel in it."""
    folder = tmp_path / "job" / "code"
    write_wheel(folder)
    return folder


def run(code, home, shell="python3 -c 'import greeter, msgspec; print(greeter.word)'"):
    program = ProgramSpec(command=shell, code=CODE, python=sys.executable, requirements="requirements.txt")
    command = job_command(program, JOB, RunValues(iterations=1, checkpoint_every=1))
    environment = {**os.environ, "HOME": str(home)}
    environment.pop("XDG_CACHE_HOME", None)
    return subprocess.run(command, shell=True, cwd=code, env=environment, capture_output=True, text=True, check=False)


def test_packages_are_installed_once_beside_those_of_the_interpreter(code, tmp_path):
    first = run(code, tmp_path)
    assert (first.returncode, first.stdout) == (0, "hello\n"), first.stderr
    assert "themis: installing requirements.txt in" in first.stderr
    (code / "wheels" / "greeter-1.0-py3-none-any.whl").unlink()
    again = run(code, tmp_path)
    assert (again.returncode, again.stdout, again.stderr) == (0, "hello\n", "")
    (environment,) = (tmp_path / ".cache" / "themis" / "environments").glob("*/themis-ready")
    environment.unlink()  # As if the task had been stopped while pip ran.
    broken = run(code, tmp_path)
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "themis: requirements.txt cannot be installed: exit code 1" in broken.stderr


def test_without_a_home_the_environment_lies_in_the_folder_of_the_job(code):
    (code / "requirements.txt").write_text("# none\n")
    ended = run(code, "/proc/none", "command -v python3")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{code.parent}/environments/")
