"""A stand-in for a ResourceManager: answers clients, and ends each app a moment after it came. Run as a script.

    python fake_rm.py STATE_DIR MODE

MODE is `well`, `fail` (its apps fail), `silent` (its apps never end), `die` (it exits after the first app), `refuse`
(it takes no app), `mute` (it never listens) or `stubborn` (as silent, and it ignores SIGTERM). It starts a marked
process that outlives it, unless someone kills it.
"""

# ruff: noqa: N802 - gRPC names the methods
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc

RUN_S = 0.6
CODE_OF_DEATH = 7


class FakeRm(rpc.ClientServiceServicer):
    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.lock = threading.Condition()
        self.events: list[pb.Event] = []
        self.apps: dict[str, pb.AppStatus] = {}
        self.tell("rm_started", "", {"cluster": "one", "gpus": 2, "machines": 1, "policy": "themis"})

    def tell(self, kind: str, app_id: str, detail: dict) -> None:
        with self.lock:
            self.events.append(
                pb.Event(
                    sequence=len(self.events) + 1,
                    time_s=time.time(),
                    kind=kind,
                    app_id=app_id,
                    detail=json.dumps(detail),
                )
            )
            self.lock.notify_all()

    def Submit(self, request, context):
        if self.mode == "refuse":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no room for it")
        app_id = f"app-{len(self.apps) + 1:04d}"
        now_s = time.time()
        self.apps[app_id] = pb.AppStatus(
            app_id=app_id,
            name=request.spec.name,
            state="RUNNING",
            replay=request.spec.replay,
            spec=request.spec,
            submitted_at_s=now_s,
            jobs=[pb.JobStatus(job_id=job.job_id, state="RUNNING", target_iteration=10) for job in request.spec.jobs],
        )
        self.tell("app_submitted", app_id, {"name": request.spec.name})
        if self.mode in ("well", "fail", "die"):
            threading.Thread(target=self.live, args=(app_id,), daemon=True).start()
        return pb.SubmitReply(app_id=app_id)

    def live(self, app_id: str) -> None:
        lease = {"lease_id": int(app_id[-4:]), "gpu": f"m00/{(int(app_id[-4:]) + 1) % 2}"}
        task = {"job_id": "job-00", "incarnation": 1, "gpus": [lease["gpu"]]}
        self.tell("lease_granted", app_id, {**lease, "expires_at_s": time.time() + 5})
        self.tell("tasks_started", app_id, {**task, "tasks": 1, "level": "slot", "iteration": 0})
        time.sleep(RUN_S)
        if self.mode == "die":
            os._exit(CODE_OF_DEATH)
        self.tell("tasks_ended", app_id, {**task, "exit_codes": [0], "requested": False, "iteration": 10})
        self.tell("lease_released", app_id, {**lease, "reason": "done"})
        app = self.apps[app_id]
        state = "FINISHED" if self.mode == "well" else "FAILED"
        for job in app.jobs:
            job.state, job.iteration, job.loss, job.has_loss = state, 10, 0.5, True
            job.accuracy, job.has_accuracy = 0.9, True
        app.best, app.progress, app.finished_at_s = app.jobs[0].job_id, 1.0, time.time()
        app.final_rho["themis"] = app.final_rho["fluid"] = 1.25
        app.diagnostics = "" if state == "FINISHED" else "on purpose"
        app.state = state
        self.tell("app_state", app_id, {"state": state, "diagnostics": app.diagnostics})

    def List(self, request, context):
        return pb.ListReply(apps=list(self.apps.values()))

    def Show(self, request, context):
        return self.apps[request.app_id]

    def ClusterInfo(self, request, context):
        return pb.ClusterStatus(gpus=2, gpus_leased=1, rounds=3)

    def Watch(self, request, context):
        after = request.after_sequence
        while context.is_active():
            with self.lock:
                if len(self.events) == after:
                    self.lock.wait(0.1)
                news = self.events[after:]
            yield from news
            after += len(news)
            if news and after % 2 == 0:
                # The stream breaks now and then, so that the watcher must reconnect for the rest.
                context.abort(grpc.StatusCode.UNAVAILABLE, "the stream broke")


def main() -> int:
    state_dir, mode = Path(sys.argv[1]), sys.argv[2]
    state_dir.mkdir(parents=True, exist_ok=True)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # In a session of its own, so that only its mark finds it.
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
    if mode == "mute":
        print("cannot listen, on purpose", flush=True)
        return CODE_OF_DEATH
    server = grpc.server(ThreadPoolExecutor(8))
    rpc.add_ClientServiceServicer_to_server(FakeRm(mode), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    partial = state_dir / "address.partial"
    partial.write_text(f"127.0.0.1:{port}\n")
    partial.replace(state_dir / "address")
    signal.sigwait({signal.SIGUSR1})
    return 0


if __name__ == "__main__":
    sys.exit(main())
