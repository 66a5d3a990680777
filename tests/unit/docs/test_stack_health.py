"""The health checks of docker-compose.yml stand a machine that is busy with other work.

Seen on two loaded cores: a daemon of Hadoop took minutes to start and some seconds to answer. A container that is found
unhealthy ends `docker compose up --wait`, and what depends on it never starts.
"""

import os
import re
import subprocess

import pytest
import yaml
from documents import ROOT, text_of

SERVICES = yaml.safe_load(text_of("docker-compose.yml"))["services"]
START_S = 300
"""Of a daemon, beside all others."""
ANSWER_S = 5
"""Of a request, while the other containers have the cores."""
DEAF_S = 60
"""A daemon that dies comes back (`restart: on-failure`); so long nobody listens."""

CURL = """#!/bin/sh
while [ $# -gt 1 ]; do [ "$1" = --max-time ] && echo "$2" >> "$WAITS"; shift; done
echo '{"state":"STARTED"}{"tag":"Operational"}{"ActorState":"RUNNING"}{"state":"RUNNING"}'
"""


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text).group(1))


@pytest.fixture(params=SERVICES)
def health(request):
    return SERVICES[request.param]["healthcheck"]


def test_slow_start_is_no_failure(health):
    assert seconds(health["start_period"]) >= START_S


def test_daemon_that_dies_has_time_to_come_back(health):
    # A refused connection fails at once, so only the pauses between the checks count.
    assert health["retries"] * seconds(health["interval"]) >= DEAF_S


def test_check_waits_for_a_slow_answer_and_ends_by_itself(health, tmp_path):
    kind, _, name = health["test"]
    assert kind == "CMD", "a shell around it would be what Docker kills, not the check"
    (tmp_path / "curl").write_text(CURL)
    (tmp_path / "curl").chmod(0o755)
    waits = tmp_path / "waits"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "WAITS": str(waits)}
    subprocess.run(("sh", ROOT / "docker" / "bin" / "healthy", name), env=environment, check=True, timeout=60)
    limits_s = [int(line) for line in waits.read_text().split()]
    assert min(limits_s) >= ANSWER_S
    assert sum(limits_s) < seconds(health["timeout"])
