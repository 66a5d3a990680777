"""Real YARN applications for tests: submits `scripted_am.py` and talks to each of its attempts."""

import json
import os
import socket
import sys
import time
from pathlib import Path

from themis.errors import ThemisError
from themis.hadoop.jvm import handed_on
from themis.hadoop.quoting import command_line
from themis.hadoop.values import AppSubmission, ProcessLaunch

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("scripted_am.py")


class RemoteError(Exception):
    """A ThemisError that the app master met; `name` is its class."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


class RunningAm:
    """One attempt. Unknown methods are calls of `ScriptedAm`'s."""

    def __init__(self, connection):
        self._connection = connection
        self._stream = connection.makefile("rw", encoding="utf-8")
        self.container_id = json.loads(self._stream.readline())["container_id"]

    def __getattr__(self, name):
        def call(**fields):
            self.tell(name, **fields)
            return self.hear()

        return call

    def tell(self, name, **fields):
        print(json.dumps([name, fields]), file=self._stream, flush=True)

    def hear(self):
        line = self._stream.readline()
        assert line, "the app master is gone"
        reply = json.loads(line)
        if "error" in reply:
            raise RemoteError(reply["error"], reply["text"])
        return reply["answer"]

    def heartbeats_until(self, is_done, timeout_s=60.0):
        """Heartbeats, 0.1 s apart; news of all of them once `is_done` says so of it."""
        news = {}
        deadline = time.monotonic() + timeout_s
        while not is_done(news):
            assert time.monotonic() < deadline, f"after {timeout_s} s: {news}"
            for kind, items in self.allocate().items():
                if isinstance(items, list):
                    news.setdefault(kind, []).extend(items)
            time.sleep(0.1)
        return news

    def granted(self, **fields):
        """Ask for one container and wait for it."""
        self.ask(**fields)
        return self.heartbeats_until(lambda news: news.get("granted"))["granted"][0]

    def ended(self, *container_ids, timeout_s=60.0):
        """Wait until these containers are over; exit code by id."""
        news = self.heartbeats_until(
            lambda news: {end["container_id"] for end in news.get("ended", ())} >= set(container_ids), timeout_s
        )
        return {end["container_id"]: end["exit_code"] for end in news["ended"]}

    def close(self):
        self._connection.close()


class Application:
    """A submitted application; close it when done."""

    def __init__(self, yarn, environment, *, connect_wait_s=20.0, **fields):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(120)
        self._ams = []
        self._yarn = yarn
        launch = ProcessLaunch(
            commands=(command_line([sys.executable, str(SCRIPT)]),),
            environment={
                **handed_on(environment),
                "PYTHONPATH": str(ROOT),
                "TEST_PORT": str(self._listener.getsockname()[1]),
                "TEST_CONNECT_WAIT_S": str(connect_wait_s),
            },
        )
        try:
            self.app_id = yarn.submit(AppSubmission(**{"name": "scripted", "memory_mb": 256, **fields}, launch=launch))
        except ThemisError:
            self._listener.close()
            raise

    def attempt(self):
        """The next attempt, once it has called."""
        connection, _ = self._listener.accept()
        connection.settimeout(120)
        self._ams.append(RunningAm(connection))
        return self._ams[-1]

    def close(self):
        self._yarn.kill(self.app_id)
        for am in self._ams:
            am.close()
        self._listener.close()


def client_environment(cluster):
    """This process's environment, and where the cluster is."""
    return {**os.environ, **cluster.exports}


def is_alive(pid):
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
