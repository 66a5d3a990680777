"""Hadoop's jars: from a folder that the environment names, or fetched once by Maven into the user's cache."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from themis.hadoop.errors import HadoopMissingError

JARS_VARIABLE = "THEMIS_HADOOP_JARS"
DEFAULT_VERSION = "3.4.2"
POM = Path(__file__).with_name("pom.xml")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_FETCH_LIMIT_S = 1200.0
_SHOWN_LINES = 5


def jar_folder(version: str | None = None, *, fetch: bool = False) -> Path:
    """The folder that holds Hadoop's jars and those they need.

    Args:
        version: Hadoop's version, e.g. `3.4.2`. None: whatever the environment's folder holds, else the default.
        fetch: Fetch them when they are not there, which takes half a minute and 100 MB.

    Raises:
        HadoopMissingError: No jars there, or Maven or Java, which fetching needs, are missing or fail.
    """
    named = os.environ.get(JARS_VARIABLE)
    if named:
        return _named_folder(Path(named), version)
    if version is not None and not _VERSION.fullmatch(version):
        raise HadoopMissingError("no version of Hadoop", value=version, remedy="such as 3.4.2 or 3.5.0")
    folder = cache_folder(version or DEFAULT_VERSION)
    if not fetch and not _is_current(folder, POM):
        remedy = f"`themis devcluster start` fetches them; or set {JARS_VARIABLE} to a folder with jars"
        raise HadoopMissingError("Hadoop's jars are not there", value=str(folder / "lib"), remedy=remedy)
    return fetched_jars(POM, folder, version or DEFAULT_VERSION)


def fetched_jars(pom: Path, folder: Path, version: str) -> Path:
    """The jars that a pom names, in `lib` of that folder; fetched by Maven unless they are there already.

    Args:
        pom: Its property `hadoop.version` is the version of Hadoop.
        folder: Made, and replaced when it is of another pom.
        version: Hadoop's, e.g. `3.4.2`.

    Raises:
        HadoopMissingError: Maven or Java are missing or fail.
    """
    if not _is_current(folder, pom):
        _fetch(pom, folder, version)
    return folder / "lib"


def cache_folder(version: str, name: str = "hadoop") -> Path:
    """Return the folder of this version's jars, which are in `lib` below it; `name` is their purpose."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "themis" / f"{name}-{version}"


def java_program() -> Path:
    """The `java` to start programs with: that of JAVA_HOME, else the one on PATH.

    Raises:
        HadoopMissingError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if os.access(program, os.X_OK):
            return program
        raise HadoopMissingError("JAVA_HOME holds no Java", value=home, remedy="set it to a Java 17, or unset it")
    found = shutil.which("java")
    if found is None:
        remedy = "install Java 17 (openjdk-17-jre-headless), or set JAVA_HOME"
        raise HadoopMissingError("there is no `java` on this machine", remedy=remedy)
    # The folder above `bin` of the real file is what JAVA_HOME stands for; PATH mostly has links.
    return Path(found).resolve()


def _named_folder(folder: Path, version: str | None) -> Path:
    wanted = f"hadoop-common-{version or '*'}.jar"
    if next(folder.glob(wanted), None) is None:
        remedy = f"{JARS_VARIABLE} must be a folder with {wanted} in it; unset it to have jars fetched"
        raise HadoopMissingError("not a folder with these jars of Hadoop", value=str(folder), remedy=remedy)
    return folder


def _is_current(folder: Path, pom: Path) -> bool:
    # A pom that has changed since may name more jars than were fetched.
    kept = folder / pom.name
    return kept.is_file() and kept.read_bytes() == pom.read_bytes()


def _fetch(pom: Path, folder: Path, version: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        remedy = f"install Maven (apt install maven), or set {JARS_VARIABLE} to a folder with Hadoop's jars"
        raise HadoopMissingError("there is no `mvn` on this machine to fetch Hadoop's jars", remedy=remedy)
    java_program()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.lock")):
        # The process that held the lock before may have fetched them.
        if _is_current(folder, pom):
            return
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as temporary:
            fresh = Path(temporary) / folder.name
            _run_maven(maven, pom, version, fresh)
            shutil.copyfile(pom, fresh / pom.name)
            if folder.exists():
                folder.rename(Path(temporary) / "former")
            fresh.rename(folder)


def _run_maven(maven: str, pom: Path, version: str, fresh: Path) -> None:
    fresh.mkdir()
    # Maven may write beside the pom that it reads, and that of an installed package is not its to write to.
    shutil.copyfile(pom, fresh / pom.name)
    command = [maven, "-B", "-q", "-f", str(fresh / pom.name), "dependency:copy-dependencies"]
    options = [f"-Dhadoop.version={version}", f"-DoutputDirectory={fresh / 'lib'}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=_FETCH_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        remedy = "Maven needs to reach a repository (~/.m2/settings.xml names mirrors and proxies)"
        raise HadoopMissingError("fetching Hadoop's jars takes too long", remedy=remedy) from error
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][:_SHOWN_LINES]
        raise HadoopMissingError(f"Maven cannot fetch Hadoop {version}", remedy="it says:\n" + "\n".join(said))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
