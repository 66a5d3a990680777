"""Programs that travel with an app: by `code` of a group file, and by `--files` and `--localization` of `job run`.

And the packages that are installed for them.
"""

import subprocess
import sys
import uuid
import zipfile

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


GREETS = """\
import greeter
for step in (1, 2, 3):
    print(f"{greeter.word}: loss = {1 / step}, step = {step}", flush=True)
"""


def write_wheel(folder):
    """Make a folder whose requirements file names a wheel in it, so that pip needs no network."""
    (folder / "wheels").mkdir(parents=True)
    info = "greeter-1.0.dist-info"
    files = {
        "greeter.py": "word = 'hello'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "".join(
            f"{name},,\n" for name in ("greeter.py", *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD")))
        ),
    }
    with zipfile.ZipFile(folder / "wheels" / "greeter-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    (folder / "requirements.txt").write_text(
        # Of its own each time: a machine keeps the environment of a file of the same content.
        f"# {uuid.uuid4()}\n--no-index\n--find-links wheels\ngreeter==1.0\n"
    )


def check_that_packages_are_installed(folder, address, environment=None):
    """Run two jobs of an app with `requirements` to their end; `address` is of a ResourceManager."""
    write_wheel(folder / "greets")
    (folder / "greets" / "train.py").write_text(GREETS)
    group = {"name": "packages", "command": "python3 train.py --lr %lr%", "code": "./greets", "job": {"iterations": 3}}
    group |= {"requirements": "requirements.txt", "hyper_parameters": [{"lr": 1}, {"lr": 2}]}
    group |= {"resources": {"memory_mb": 512, "vcores": 1}}
    (folder / "packages.yaml").write_text(yaml.safe_dump(group))
    done = _submarine(folder, address, environment, "app", "submit", "packages.yaml", "--wait")
    read = ("app", "logs", "packages", "--job")
    logs = [_submarine(folder, address, environment, *read, job) for job in ("job-00", "job-01")]
    shown = "\n".join(log.stdout for log in logs)
    assert done.returncode == 0, done.stdout + done.stderr + shown
    for log in logs:
        assert "hello: loss = 1.0, step = 1" in log.stdout.splitlines(), shown
    assert "themis: installing requirements.txt in" in shown


def _submarine(folder, address, environment, *words):
    command = [sys.executable, "-m", "submarine_client.main", *words, "--rm", address]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
