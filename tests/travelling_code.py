"""Programs that travel with an app: by `code` of a group file, and by `--files` and `--localization` of `job run`."""

import subprocess
import sys

import yaml

TRAIN = """\
import pathlib
word = pathlib.Path("data/word.txt").read_text().strip()
for step in (1, 2, 3):
    print(f"{word}: loss = {1 / step}, step = {step}", flush=True)
"""


def check_that_code_travels(folder, address, environment=None):
    """Run both ways to the end; `address` is of a ResourceManager, `folder` gets the files."""
    (folder / "mine/data").mkdir(parents=True)
    (folder / "mine/train.py").write_text(TRAIN)
    (folder / "mine/data/word.txt").write_text("from the folder\n")
    (folder / "word.txt").write_text("localized\n")
    resources = {"memory_mb": 256, "vcores": 1}
    group = {"name": "group", "command": "python3 train.py", "code": "./mine", "job": {"iterations": 3}}
    (folder / "group.yaml").write_text(yaml.safe_dump({**group, "resources": resources}))
    job = [
        *("job", "run", "--name", "files", "--input_path", "/none", "--wait_job_finish"),
        *("--worker_resources", "memory=256M,vcores=1,gpu=1", "--worker_launch_cmd", "python3 train.py"),
        *("--files", "mine/train.py", "--localization", "word.txt:data/word.txt"),
    ]
    for words, name, expected in (
        (["app", "submit", "group.yaml", "--wait"], "group", "from the folder: loss = 1.0, step = 1"),
        (job, "files", "localized: loss = 1.0, step = 1"),
    ):
        done = _submarine(folder, address, environment, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in _submarine(folder, address, environment, "app", "logs", name).stdout.splitlines()


def _submarine(folder, address, environment, *words):
    command = [sys.executable, "-m", "submarine_client.main", *words, "--rm", address]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
