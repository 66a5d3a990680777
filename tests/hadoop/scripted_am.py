"""An app master in a real YARN container that executes a test's commands, one JSON line each, from a socket."""

import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from themis.errors import ThemisError
from themis.hadoop.am_client import AmClient
from themis.hadoop.nm_client import NmClient
from themis.hadoop.security import task_tokens
from themis.hadoop.values import ContainerAsk, FinalStatus, ProcessLaunch


class ScriptedAm:
    def __init__(self):
        wait_s = float(os.environ["TEST_CONNECT_WAIT_S"])
        self.am = AmClient(connect_wait_s=wait_s)
        self.nm = NmClient(connect_wait_s=wait_s)
        self.containers = {}

    def register(self):
        answer = self.am.register(socket.gethostname(), 4711, "http://localhost:4712/page")
        return {
            "previous": [self._known(container) for container in answer.previous],
            "max_memory_mb": answer.max_memory_mb,
            "max_vcores": answer.max_vcores,
            "max_gpus": answer.max_gpus,
        }

    def ask(self, **fields):
        # Not a multiple of the cluster's minimum: YARN rounds it up.
        self.am.ask(ContainerAsk(**{"memory_mb": 100, **fields}))

    def withdraw(self, allocation_request_id):
        return self.am.withdraw(allocation_request_id)

    def allocate(self, progress=0.5):
        return self._news(self.am.allocate(progress))

    def _news(self, reply):
        return {
            "granted": [self._known(container) for container in reply.granted],
            "ended": [msgspec.to_builtins(end) for end in reply.ended],
            "lost_nodes": [node.host for node in reply.lost_nodes],
            "recovered": [self._known(container) for container in reply.recovered],
            "unasked": list(reply.unasked),
            "refused": [msgspec.to_builtins(refusal) for refusal in reply.refused],
            "headroom_gpus": reply.headroom_gpus,
        }

    def allocate_and_ask_meanwhile(self, **fields):
        """Seconds that the heartbeat took, and an ask half a second into it; and the heartbeat's news."""
        begun_s = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            heartbeat = pool.submit(self.am.allocate, 0.5)
            time.sleep(0.5)
            asked_s = time.monotonic()
            self.ask(**fields)
            ask_took_s = time.monotonic() - asked_s
            news = self._news(heartbeat.result())
        return time.monotonic() - begun_s, ask_took_s, news

    def start(self, container_id, **fields):
        fields["commands"] = tuple(fields["commands"])
        self.nm.start(self.containers[container_id], ProcessLaunch(tokens=task_tokens(), **fields))

    def start_with_unreadable_tokens(self, container_id):
        self.nm.start(self.containers[container_id], ProcessLaunch(tokens=b"no tokens", commands=("sleep 600",)))

    def has(self, container_id):
        return self.nm.has(self.containers[container_id])

    def stop(self, container_id):
        self.nm.stop(self.containers[container_id])

    def status(self, container_id):
        return self.nm.status(self.containers[container_id]).state.value

    def release(self, container_id):
        self.am.release(self.containers[container_id])

    def unregister(self, status, diagnostics):
        self.am.unregister(FinalStatus(status), diagnostics)

    def pid(self):
        return os.getpid()

    def add_task_token(self):
        """A token beside the app master's own, such as HDFS would give; kinds of what we hold now."""
        import jpype

        users = jpype.JClass("org.apache.hadoop.security.UserGroupInformation")
        token = jpype.JClass("org.apache.hadoop.security.token.Token")()
        token.setKind(jpype.JClass("org.apache.hadoop.io.Text")("FOR_TASKS"))
        token.setService(jpype.JClass("org.apache.hadoop.io.Text")("for-tasks"))
        users.getCurrentUser().addToken(token)
        return sorted(str(held.getKind()) for held in users.getCurrentUser().getTokens())

    def _known(self, container):
        self.containers[container.container_id] = container
        fields = ("container_id", "host", "node_id", "gpus", "memory_mb", "vcores", "allocation_request_id")
        return {name: getattr(container, name) for name in fields}


def main():
    master = ScriptedAm()
    with socket.create_connection(("127.0.0.1", int(os.environ["TEST_PORT"]))) as connection:
        stream = connection.makefile("rw", encoding="utf-8")
        print(json.dumps({"container_id": os.environ["CONTAINER_ID"]}), file=stream, flush=True)
        for line in stream:
            name, fields = json.loads(line)
            if name == "exit":
                return fields["code"]
            try:
                answer = {"answer": getattr(master, name)(**fields)}
            except ThemisError as error:
                answer = {"error": type(error).__name__, "text": str(error)}
            print(json.dumps(answer), file=stream, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
