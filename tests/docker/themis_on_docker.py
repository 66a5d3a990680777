"""A ResourceManager with the engine `docker`, as a process: started, killed, asked; and its containers, by labels."""

import contextlib
import ipaddress
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import yaml
from docker.client import DockerClient

from submarine_client.connection import Connection
from themis.config.group_file import load_group
from themis.docker_host import APP_LABEL, APP_MASTER, ROLE_LABEL, RUN_LABEL, TASK
from themis.errors import ThemisError
from themis_lab.testbed.events import event_from_message

ROOT = Path(__file__).resolve().parents[2]
EMULATED = ROOT / "conf/clusters/small-8.yaml"
GROUP = {
    "name": "app", "program": "replay", "arguments": {"serial_iteration_s": 0.1, "log_every": 5},
    "tuner": {"name": "single"}, "job": {"tasks": 1, "gpus_per_task": 1, "iterations": 250}, "jobs": 1,
    "search_space": {"learning_rate": {"log_uniform": [0.001, 0.1]}}, "checkpoint_every": 10, "seed": 1,
    "resources": {"memory_mb": 256, "vcores": 1}, "estimate": {"serial_iteration_s": 0.1},
}  # fmt: skip
ENDED = ("FINISHED", "FAILED", "KILLED")


class ThemisOnDocker:
    """`themis rm start` with the engine docker; everything it writes lies in `folder`."""

    def __init__(self, folder, image, *, cluster=EMULATED, listen=None):
        self.folder = folder
        self.docker = DockerClient.from_env()
        self.settings = {
            "engine": "docker", "cluster": str(cluster), "state_dir": str(folder / "state"),
            "listen": listen or f"{self.bridge_address()}:0", "coalesce_s": 0.2, "unfit_s": 5, "validate_state": True,
            "rm_absence_s": 60, "insecure": True,
            "lease": {"duration_s": 60, "checkpoint_lead_s": 4, "grace_s": 15}, "docker": {"image": image},
        }  # fmt: skip
        self.process = None
        self.run_id = ""

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            for container in self.containers(every=True):
                container.remove(force=True)
            self.docker.close()

    def bridge_address(self):
        """The address of this machine on Docker's own bridge."""
        (configuration, *_) = self.docker.networks.get("bridge").attrs["IPAM"]["Config"]
        return configuration.get("Gateway") or str(ipaddress.ip_network(configuration["Subnet"])[1])

    # ---- the ResourceManager ----

    def start(self):
        """Start it and wait until it answers."""
        path = self.folder / "rm.yaml"
        path.write_text(yaml.safe_dump(self.settings))
        address = self.folder / "state" / "address"
        address.unlink(missing_ok=True)
        with (self.folder / "rm.log").open("ab") as log:
            command = [sys.executable, "-m", "themis_cli.main", "rm", "start", "-c", str(path)]
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        self.until(address.exists, "the ResourceManager listens", 60)
        self.address = address.read_text().strip()
        self.client = Connection(self.address, timeout_s=60.0)
        self.client.wait_until_ready(60.0)
        with contextlib.closing(sqlite3.connect(self.folder / "state" / "rm.sqlite")) as store:
            ((self.run_id,),) = store.execute("SELECT value FROM meta WHERE key = 'run_id'")

    def kill(self):
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self.client.close()

    def stop(self):
        """SIGTERM; kill -9 when that takes more than a minute."""
        if self.process.poll() is not None:
            return
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(60) == 0, self.log()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def log(self):
        text = (self.folder / "rm.log").read_text()[-6000:]
        masters = sorted((self.folder / "state").glob("apps/*/am-*.log"))
        return text + "".join(f"\n--- {path}\n{path.read_text()[-3000:]}" for path in masters)

    # ---- apps ----

    def group(self, **changes):
        """A group file; a change to None leaves a key out."""
        path = self.folder / f"group-{time.monotonic_ns()}.yaml"
        group = {name: value for name, value in {**GROUP, **changes}.items() if value is not None}
        path.write_text(yaml.safe_dump(group))
        return path

    def submit(self, **changes):
        """Submit an app of replayed jobs; returns its id."""
        return self.client.submit(load_group(self.group(**changes)))

    def submarine(self, *words):
        """The command, to its end."""
        command = [sys.executable, "-m", "submarine_client.main", *words, "--rm", self.address]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)

    def app(self, app_id):
        return self.client.show(app_id)

    def state(self, app_id):
        try:
            return self.app(app_id).state
        except ThemisError:
            return "?"

    def wait_until_iterating(self, app_id, iterations=30, limit_s=90.0):
        """Wait until every job of the app has done this many iterations."""

        def ran():
            jobs = self.app(app_id).jobs
            return jobs and all(job.iteration >= iterations for job in jobs)

        self.until(ran, f"{app_id} is at work", limit_s)

    def ends_well(self, app_id, limit_s=150.0):
        """The app once it has ended, as it should."""
        self.until(lambda: self.state(app_id) in ENDED, f"{app_id} ends", limit_s)
        app = self.app(app_id)
        assert app.state == "FINISHED", f"{app.diagnostics}\n{self.log()}"
        return app

    def until(self, condition, what, limit_s=60.0):
        deadline_s = time.monotonic() + limit_s
        while not (value := condition()):
            if self.process.poll() is not None:
                raise AssertionError(f"the ResourceManager ended while waiting: {what}\n{self.log()}")
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not within {limit_s:g} s: {what}\n{self.log()}")
            time.sleep(0.1)
        return value

    def events(self):
        """Every event so far."""
        return [event_from_message(event) for event in self.client.watch(follow=False)]

    # ---- containers ----

    def masters(self, app_id):
        """The containers of the app's masters."""
        return self.containers(app_id, APP_MASTER)

    def tasks(self, app_id):
        """The containers of the app's tasks."""
        return self.containers(app_id, TASK)

    def containers(self, app_id="", role="", *, every=False):
        """Containers with these labels; with `every`, ended ones of the whole run as well."""
        labels = {RUN_LABEL: self.run_id, APP_LABEL: app_id, ROLE_LABEL: role}
        wanted = [f"{name}={value}" for name, value in labels.items() if value]
        found = self.docker.containers.list(all=True, filters={"label": wanted}, ignore_removed=True)
        return found if every else [each for each in found if each.status == "running"]

    def networks(self):
        """The networks of the run."""
        return self.docker.networks.list(filters={"label": f"{RUN_LABEL}={self.run_id}"})
