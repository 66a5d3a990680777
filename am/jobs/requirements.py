"""The packages of an app's requirements file: the shell text that installs them before a task's command. Pure.

Tasks run in processes, in containers and on nodes of YARN, by interpreters of any version. All of these have a shell
and the interpreter, so the installation is text for both.
"""

from __future__ import annotations

import shlex

SCRIPT = """\
import fcntl, hashlib, importlib.util, os, pathlib, shutil, site, subprocess, sys, sysconfig

file = pathlib.Path(sys.argv[1])
identity = repr((os.uname().machine, sys.executable, sys.version, file.read_bytes()))
name = hashlib.sha256(identity.encode()).hexdigest()[:16]
cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "themis", "environments")
try:
    cache.mkdir(parents=True, exist_ok=True)
    lock = open(str(cache / (name + ".lock")), "a")
except OSError:  # The user has no home that can be written, as in many containers.
    cache = pathlib.Path("..", "environments").resolve()
    cache.mkdir(exist_ok=True)
    lock = open(str(cache / (name + ".lock")), "a")
fcntl.flock(lock, fcntl.LOCK_EX)
made, ready = cache / name, cache / name / "themis-ready"
if not ready.exists():
    print("themis: installing", file, "in", made, file=sys.stderr, flush=True)
    shutil.rmtree(str(made), ignore_errors=True)

    def run(*command):
        code = subprocess.call(command, stdout=sys.stderr)
        if code:
            sys.exit("themis: %s cannot be installed: exit code %d" % (file, code))

    # What the interpreter has, pip too, need not be installed again. Isolated (-I), since the task's folder may have a
    # venv.py or pip.py of its own.
    run(sys.executable, "-Im", "venv", *(["--without-pip"] if importlib.util.find_spec("pip") else []), str(made))
    folder = sysconfig.get_path("purelib", "posix_prefix", {"base": str(made)})
    folders = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
    known = ["import site; site.addsitedir(%r)" % path for path in folders]
    pathlib.Path(folder, "themis-base.pth").write_text("\\n".join(known) + "\\n")
    pip = (str(made / "bin" / "python"), "-Im", "pip", "install", "--quiet", "--no-input", "--progress-bar", "off")
    run(*pip, "--disable-pip-version-check", "-r", str(file))
    ready.touch()
print(made)
"""
"""Makes the environment of an interpreter and a requirements file where there is none, and prints its folder.

For any Python from 3.8 on. Tasks of one user on one machine share the environment, and wait while one of them makes it.
An environment that was not finished, because its task was stopped, is made again.
"""


def with_requirements(file: str, python: str, command: str) -> str:
    """Put the environment of a requirements file first in PATH. Without it the command is not run.

    Args:
        file: The file, relative to the folder in which the command starts.
        python: The interpreter whose packages it adds to; empty for the `python3` in PATH.
        command: Text for the shell.
    """
    install = shlex.join((python or "python3", "-c", SCRIPT, file))
    return f'VIRTUAL_ENV=$({install}) || exit\nexport VIRTUAL_ENV PATH="$VIRTUAL_ENV/bin:$PATH"\n{command}'
