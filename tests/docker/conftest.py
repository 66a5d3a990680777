"""The Docker tier: tests against a real Docker engine, with an image of this working tree that lacks TensorFlow."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from themis.docker_host import DockerHost

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
IMAGE = "themis-engine-test"
# The first one may build the image, from packages that come through a network.
TIMEOUT_S = 1800
BUILD_S = 1700


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark every test in this folder as one of this tier."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.docker)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S), append=False)


def why_not():
    """Why there is no engine; empty when there is one."""
    if shutil.which("docker") is None:
        return "there is no `docker` on this machine"
    done = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"`docker info` fails: {done.stderr.strip()[:200]}"


@pytest.fixture(scope="session")
def docker_host():
    """The engine that the environment names. None: a skip, in CI as well, since few CI machines may run containers."""
    if reason := why_not():
        pytest.skip(f"NOT TESTED against Docker: {reason}")
    host = DockerHost.connect()
    yield host
    host.close()


@pytest.fixture(scope="session")
def image(docker_host):
    """The image of docs/how-to/docker.md, but for TensorFlow: replayed jobs do without."""
    # Else pytest ends without a teardown, and the ResourceManager and its containers live on.
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    secrets = [("extra_ca", "EXTRA_CA"), ("pip_config", "STACK_PIP_CONFIG")]
    given = [f"id={name},src={os.environ[variable]}" for name, variable in secrets if os.environ.get(variable)]
    command = ["docker", "build", "--target", "engine", "--build-arg", "EXTRAS=hdfs docker", "-t", IMAGE]
    command += [word for each in given for word in ("--secret", each)]
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
    done = subprocess.run(
        [*command, "-f", "docker/Dockerfile", "."], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=BUILD_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    yield IMAGE
    signal.signal(signal.SIGTERM, former)
