"""Play attacks of a client without a token on the ResourceManager of a checkout, this one or one of an older commit.

Every attack speaks a part of the wire that has not changed since callers have an identity, so that the holes of before
show, and that they are closed:

    git worktree add /tmp/before 2102d20d9
    make -C /tmp/before setup
    python tools/attack_checkout.py /tmp/before
    python tools/attack_checkout.py .

Prints a line for each attack: `succeeds` or `refused`. Exits with 1 if one succeeds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc

APP = """
name: victim
user: ann
program: replay
arguments: {model: resnet50}
tuner: single
job: {tasks: 1, min_tasks: 1, gpus_per_task: 1, iterations: 100000}
environment: {PASSWORD: of-ann}
estimate: {serial_iteration_s: 3.0}
"""
SETTINGS = "cluster: small-8\nlisten: 127.0.0.1:0\nstate_dir: state\npolicy: srtf\n"
WAIT_S = 60.0


class Target:
    """A ResourceManager of a checkout with an app of the user ann, which an administrator submitted for it.

    Args:
        channel: To the ResourceManager, without a token.
        folder: Its working folder.
        app_id: The app.
    """

    def __init__(self, channel: grpc.Channel, folder: Path, app_id: str) -> None:
        self.clients = rpc.ClientServiceStub(channel)
        self.admins = rpc.AdminServiceStub(channel)
        self.masters = rpc.ArbiterServiceStub(channel)
        self.folder, self.app_id = folder, app_id

    def stored(self) -> tuple[str, pb.AppSpec]:
        """What the store has of the app: its token, and its specification."""
        with contextlib.closing(sqlite3.connect(self.folder / "state" / "rm.sqlite")) as store:
            token, spec = store.execute("SELECT token, spec FROM apps WHERE app_id = ?", (self.app_id,)).fetchone()
        return str(token), pb.AppSpec.FromString(spec)


def submit_as_another_user(target: Target) -> bool:
    """Submit an app of the user ann."""
    spec = target.stored()[1]
    spec.name = "forged"
    return bool(target.clients.Submit(pb.SubmitRequest(spec=spec)).app_id)


def read_the_environment(target: Target) -> bool:
    """Read the password in the environment of another user's app."""
    shown = target.clients.Show(pb.ShowRequest(app_id=target.app_id, environment=True))
    return bool(shown.spec.program.environment["PASSWORD"] == "of-ann")


def read_the_logs(target: Target) -> bool:
    """Read the logs of another user's app."""
    list(target.clients.Logs(pb.LogsRequest(app_id=target.app_id)))
    return True


def find_a_token_in_the_store(target: Target) -> bool:
    """Find the token of an attempt in clear."""
    token = target.stored()[0]
    return bool(token) and not token.startswith("sha256:")


def register_as_an_attempt(target: Target) -> bool:
    """Open a session with what the store has as the token, as an attempt that the engine did not start."""
    token = target.stored()[0]
    register = pb.Register(app_id=target.app_id, token=token, attempt=7, pid=os.getpid())
    first = next(target.masters.Session(iter([pb.AmMessage(register=register)])))
    return bool(first.WhichOneof("body") == "registered")


def drain_a_machine(target: Target) -> bool:
    """Take a machine out of service."""
    status = target.admins.Status(pb.RmStatusRequest())
    target.admins.Drain(pb.DrainRequest(machine_id=status.nodes[0].machine_id, drained=True))
    return True


def end_the_app(target: Target) -> bool:
    """End another user's app."""
    return bool(target.clients.Kill(pb.KillRequest(app_id=target.app_id)).app_id)


def stop_the_service(target: Target) -> bool:
    """Stop the ResourceManager."""
    target.admins.Stop(pb.StopRequest())
    return True


ATTACKS: tuple[Callable[[Target], bool], ...] = (
    submit_as_another_user,
    read_the_environment,
    read_the_logs,
    find_a_token_in_the_store,
    register_as_an_attempt,
    drain_a_machine,
    end_the_app,
    stop_the_service,
)


@contextlib.contextmanager
def target_of(checkout: Path) -> Iterator[Target]:
    """Start the ResourceManager of a checkout, submit the app, and end all of it afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "themis.yaml").write_text(SETTINGS)
        (folder / "app.yaml").write_text(APP)
        command = [sys.executable, "-m", "themis_cli", "rm", "start", "-c", "themis.yaml"]
        log = (folder / "log").open("w")
        service = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            address = _address(folder / "log", service)
            environment["THEMIS_RM"] = address
            submit = "import sys; from submarine_client.main import main; sys.exit(main(sys.argv[1:]))"
            answer = subprocess.run(
                [sys.executable, "-c", submit, "app", "submit", "app.yaml"],
                cwd=folder, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            app_id = next((word for word in answer.stdout.split() if word.startswith("app-")), "").strip(":,.")
            if not app_id:
                raise SystemExit(f"the app was not accepted: {answer.stdout}{answer.stderr}")
            with grpc.insecure_channel(address) as channel:
                target = Target(channel, folder, app_id)
                # An app has a token once its app master is about to start.
                deadline_s = time.monotonic() + WAIT_S
                while not target.stored()[0] and time.monotonic() < deadline_s:
                    time.sleep(0.1)
                yield target
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait(WAIT_S)
            log.close()


def _address(log: Path, service: subprocess.Popen[bytes]) -> str:
    """Wait until the ResourceManager has said where it listens."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s and service.poll() is None:
        words = log.read_text().split()
        if "listening" in words and len(words) > words.index("listening") + 2:
            return words[words.index("listening") + 2].rstrip(",")
        time.sleep(0.1)
    raise SystemExit(f"the ResourceManager does not start:\n{log.read_text()}")


def main() -> int:
    """Parse the command line, play the attacks and print what they did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout with its C extensions built")
    succeeded = 0
    with target_of(parser.parse_args().checkout.resolve()) as target:
        for attack in ATTACKS:
            try:
                won = attack(target)
            except grpc.RpcError:
                won = False
            succeeded += won
            sys.stdout.write(f"{'succeeds' if won else 'refused ':9} {attack.__name__.replace('_', ' ')}\n")
    return int(succeeded > 0)


if __name__ == "__main__":
    sys.exit(main())
