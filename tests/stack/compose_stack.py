"""The stack of docker-compose.yml for tests: a project of its own, beside one that a user may have running."""

import json
import os
import re
import subprocess
import time
import urllib.request

from documents import ROOT

PROJECT = "themis-test"
_UNITS_MB = {"B": 1e-6, "kB": 1e-3, "KiB": 1024e-6, "MiB": 1.048576, "MB": 1.0, "GiB": 1073.741824, "GB": 1000.0}


class ComposeStack:
    """Runs commands as a user types them in the project's folder; the environment names the project."""

    def __init__(self):
        # Port 0: whichever are free, so that a user's own stack is not in the way.
        own = {"COMPOSE_PROJECT_NAME": PROJECT, "THEMIS_PAGE_PORT": "0", "YARN_PAGE_PORT": "0"}
        self.environment = {**os.environ, **own}

    def run(self, line, *, timeout_s=300, stdin="", check=True):
        done = subprocess.run(
            line,
            shell=isinstance(line, str),
            cwd=ROOT,
            env=self.environment,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert not check or done.returncode == 0, f"$ {line}\n{done.stdout}"
        return done

    def inside(self, service, *words, **options):
        """What a command prints in a service's container, errors included."""
        return self.run(["docker", "compose", "exec", "-T", service, *words], **options).stdout

    # ---- apps ----

    def submit(self, group):
        """Submit a group given as text; returns the app's id, which comes among other words."""
        printed = self.inside("client", "submarine", "app", "submit", "/dev/stdin", stdin=group)
        (app_id,) = set(re.findall(r"\bapp-[0-9]+\b", printed))
        return app_id

    def app(self, app_id):
        return json.loads(self.inside("client", "submarine", "app", "show", app_id, "--json"))

    def kill(self, app_id):
        self.inside("client", "submarine", "app", "kill", app_id, check=False)

    def end_apps(self):
        """Kill whatever runs, and wait until YARN has its memory and GPUs back."""
        for app in json.loads(self.inside("client", "submarine", "app", "list", "--json")):
            if app["finished_at_s"] is None:
                self.kill(app["app_id"])
        wait_until(lambda: all(node["usedMemoryMB"] == 0 for node in self.nodes()))

    def nodes(self):
        """YARN's nodes, from its REST service."""
        return self.yarn("/ws/v1/cluster/nodes")["nodes"]["node"]

    def events(self, app_id=""):
        """All events, of one app if it is named."""
        found, after = [], 0
        while page := self.themis(f"/api/v1/events?app={app_id}&after={after}&limit=500")["events"]:
            found += page
            after = page[-1]["sequence"]
        return found

    # ---- pages, at the ports that are published on this machine ----

    def themis(self, path):
        return _get(self._published("themis-rm", 8090) + path)

    def yarn(self, path):
        return _get(self._published("resourcemanager", 8088) + path)

    def _published(self, service, port):
        return "http://" + self.run(["docker", "compose", "port", service, str(port)]).stdout.strip()

    # ---- Docker ----

    def memory_mb(self):
        """Of all containers together, as Docker counts it."""
        lines = self.run(
            "docker stats --no-stream --format '{{.MemUsage}}' $(docker compose ps -q)"
        ).stdout.splitlines()
        used = [re.match(r"([\d.]+)(\w+)", line).groups() for line in lines]
        return {"containers": len(used), "mb": sum(float(number) * _UNITS_MB[unit] for number, unit in used)}

    def restarts(self, service):
        return int(self.run(f"docker inspect -f '{{{{.RestartCount}}}}' $(docker compose ps -q {service})").stdout)

    def left(self):
        """Whatever of the project is still there."""
        chosen = f"--filter label=com.docker.compose.project={PROJECT}"
        kinds = ("container ls --all", "volume ls", "network ls")
        return "".join(self.run(f"docker {kind} --quiet {chosen}").stdout for kind in kinds)


def wait_until(condition, limit_s=120):
    """The first true value of a function without arguments; fails when there is none in time."""
    deadline_s = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, "it does not come to be"
        time.sleep(1)
    return value


def _get(url):
    # A web proxy of the environment has nothing to do with this machine's own ports.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=20) as answer:
        body = answer.read().decode()
    return json.loads(body) if "json" in answer.headers["Content-Type"] else body
