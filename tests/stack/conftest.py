"""The stack tier: tests against the containers of docker-compose.yml, one stack for all of them."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from compose_stack import ComposeStack
from documents import block, commands

HERE = Path(__file__).parent
# The first one may build all images: a gigabyte comes through the network.
TIMEOUT_S = 1800
UP_S = 1700


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark every test in this folder as one of this tier."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.stack)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S), append=False)


def why_not():
    """Why there can be no stack; empty when there can."""
    if shutil.which("docker") is None:
        return "there is no `docker` on this machine"
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"`{' '.join(command)}` fails: {done.stderr.strip()[:200]}"
    return ""


@pytest.fixture(scope="session")
def stack():
    """The stack as the guide starts and removes it; nothing of it is left after the last test."""
    if reason := why_not():
        if os.environ.get("CI"):
            pytest.fail(f"the stack tier cannot run, and CI is set: {reason}")
        pytest.skip(f"NOT TESTED on the container stack: {reason}")
    (up,) = commands(block("docs/how-to/stack.md", "up"))
    (down,) = commands(block("docs/how-to/stack.md", "down"))
    # Else pytest ends without a teardown, and the containers live on.
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    stack = ComposeStack()
    try:
        stack.run(up.line, timeout_s=UP_S)
        stack.idle = stack.memory_mb()
        yield stack
    finally:
        stack.run(down.line)
        signal.signal(signal.SIGTERM, former)
    assert stack.left() == ""


@pytest.fixture(autouse=True)
def no_apps_left(stack):
    """What a test leaves running would take GPUs from the next one."""
    yield
    stack.end_apps()
