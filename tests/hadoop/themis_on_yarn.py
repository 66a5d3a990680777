"""A ResourceManager of Themis on a development cluster, as a process: started, killed, asked, and audited."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import suppress

import psutil
import yaml

from submarine_client.connection import Connection
from themis.config.group_file import load_group
from themis.errors import ThemisError
from themis_lab.testbed.audit_ownership import check_leases_per_gpu, check_tasks_per_gpu
from themis_lab.testbed.audit_values import AuditInput, AuditLimits, Findings
from themis_lab.testbed.events import event_from_message

ENDED = ("FINISHED", "FAILED", "KILLED")
ITERATIONS = 150
"""Of each job, 0.1 s each, where a test asks for nothing else."""


class ThemisOnYarn:
    """`themis rm start` with the engine yarn; everything it writes lies in `folder`.

    Args:
        cluster: The development cluster.
        folder: For its settings, state and log.
        lease_s: Seconds of a lease. Tests that wait for its end take less.
        yarn: More settings of the engine.
    """

    def __init__(self, cluster, folder, lease_s=30, **yarn):
        self.cluster = cluster
        self.folder = folder
        self.environment = {**os.environ, **cluster.exports}
        fast = {"heartbeat_s": 0.2, "poll_s": 0.3, "emulated": True, "task_memory_mb": 512, "am_memory_mb": 512}
        self.settings = {
            "engine": "yarn", "state_dir": str(folder / "state"), "listen": "127.0.0.1:0", "page": "127.0.0.1:0",
            "lease": {"duration_s": lease_s, "checkpoint_lead_s": 4, "grace_s": 15}, "coalesce_s": 0.2, "unfit_s": 5,
            "rm_absence_s": 120,
            "validate_state": True, "yarn": {**fast, **yarn},
        }  # fmt: skip
        self.options = ()
        self.process = None
        self._forgotten = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    # ---- the ResourceManager ----

    def start(self):
        """Start it and wait until it answers."""
        (self.folder / "state" / "address").unlink(missing_ok=True)
        self.launch()
        self.wait_until_it_answers()

    def launch(self):
        """Start the process."""
        path = self.folder / "rm.yaml"
        path.write_text(yaml.safe_dump(self.settings))
        with (self.folder / "rm.log").open("ab") as log:
            command = [sys.executable, "-m", "themis_cli.main", "rm", "start", "-c", str(path), *self.options]
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=subprocess.STDOUT)

    def wait_until_it_answers(self):
        """Wait until it listens, and connect."""
        address = self.folder / "state" / "address"
        self.until(address.exists, "the ResourceManager listens", 150)
        self.client = Connection(address.read_text().strip(), timeout_s=60.0)
        self.client.wait_until_ready(60.0)

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
        return (self.folder / "rm.log").read_text()[-6000:]

    def page(self, path):
        """A document of its page, as JSON."""
        (address,) = re.findall(r"the page is at (http://\S+)", (self.folder / "rm.log").read_text())[-1:]
        with urllib.request.urlopen(f"{address}{path}", timeout=60) as answer:
            return json.load(answer)

    def yarn_says(self, path):
        """A document of YARN's REST service."""
        with urllib.request.urlopen(f"{self.cluster.rm_web}/ws/v1/cluster/{path}", timeout=60) as answer:
            return json.load(answer)

    def yarn_app(self, app_id):
        """An app as YARN reports it."""
        return self.yarn_says(f"apps/{self.app(app_id).engine_id}")["app"]

    def left_of(self, host):
        """Memory in MB and virtual cores that a node has left, as YARN says."""
        nodes = self.yarn_says("nodes")["nodes"]["node"]
        (node,) = [node for node in nodes if node["nodeHostName"] == host]
        return node["availMemoryMB"], node["availableVirtualCores"]

    # ---- apps ----

    def submit(self, **changes):
        """Submit an app of replayed jobs; returns its id."""
        group = {
            "name": "app", "program": "replay", "arguments": {"serial_iteration_s": 0.1, "log_every": 5},
            "tuner": {"name": "single"}, "job": {"tasks": 1, "gpus_per_task": 1, "iterations": ITERATIONS}, "jobs": 2,
            "search_space": {"learning_rate": {"log_uniform": [0.001, 0.1]}}, "checkpoint_every": 20, "seed": 1,
            "resources": {"memory_mb": 256, "vcores": 1}, "estimate": {"serial_iteration_s": 0.1}, **changes,
        }  # fmt: skip
        path = self.folder / f"group-{time.monotonic_ns()}.yaml"
        path.write_text(yaml.safe_dump(group))
        return self.client.submit(load_group(path))

    def app(self, app_id):
        return self.client.show(app_id)

    def wait_until_ended(self, app_id, limit_s=120.0):
        self.until(lambda: self.state(app_id) in ENDED, f"{app_id} ends", limit_s)
        return self.app(app_id)

    def state(self, app_id):
        try:
            return self.app(app_id).state
        except ThemisError:
            return "?"

    def wait_until_iterating(self, app_id, iterations=40, limit_s=120.0):
        """Wait until every job of the app has done this many iterations; the default is two checkpoints."""

        def ran():
            jobs = self.app(app_id).jobs
            return jobs and all(job.iteration >= iterations for job in jobs)

        self.until(ran, f"{app_id} is at work", limit_s)

    def until(self, condition, what, limit_s=60.0):
        deadline_s = time.monotonic() + limit_s
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"the ResourceManager ended while waiting: {what}\n{self.log()}")
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not within {limit_s:g} s: {what}\n{self.log()}")
            time.sleep(0.1)

    # ---- what happened ----

    def forget_events(self):
        """Leave events so far out of all that follows."""
        self._forgotten = max((event.sequence for event in self.events()), default=self._forgotten)

    def events(self):
        """Every event so far that is not forgotten."""
        found = self.client.watch(after_sequence=self._forgotten, follow=False)
        return [event_from_message(event) for event in found]

    def kinds(self, app_id=""):
        return Counter(event.kind for event in self.events() if not app_id or event.app_id == app_id)

    def audit(self):
        """What the log of events shows of GPUs with two owners."""
        gpus = [f"{host}/{index}" for host, count in self.cluster.node_gpus.items() for index in range(count)]
        lease = self.settings["lease"]
        limits = AuditLimits(lease_s=lease["duration_s"], grace_s=lease["grace_s"], round_s=10.0)
        run = AuditInput(events=tuple(self.events()), gpus=tuple(gpus), limits=limits)
        findings = Findings(run.start_s)
        check_leases_per_gpu(run, findings)
        check_tasks_per_gpu(run, findings)
        result = findings.result()
        assert result.checks["a GPU has one lease at a time"], "the audit had nothing to look at"
        return result.violations

    def processes(self, *words, app_id=""):
        """Processes of this cluster's containers whose command line has these words, by id."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                environment = process.environ()
                # By folder: a task's environment holds nothing of ours but what it needs.
                if (
                    not process.cwd().startswith(str(self.cluster.deployment.layout.root))
                    or "NM_HOST" not in environment
                ):
                    continue
                if app_id and environment.get("THEMIS_APP_ID") != app_id:
                    continue
                command = process.cmdline()
                # One that is about to end has no command line any more.
                if all(any(word in part for part in command) for word in words) and command[:1] not in ([], ["bash"]):
                    found[process.pid] = environment
        return found

    def app_masters(self, app_id=""):
        return list(self.processes("am.main", app_id=app_id))

    def tasks(self, app_id=""):
        return self.processes("tf_jobs", app_id=app_id)

    def gpus_in_use(self):
        """GPUs that living tasks hold by host; each task of these tests holds one."""
        return Counter(environment["NM_HOST"] for environment in self.tasks().values())
