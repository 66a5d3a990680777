"""The environment of `bench resize`: a ResourceManager with two GPUs, on this machine or on YARN."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from msgspec import field

from submarine_client.connection import Connection
from themis.errors import ThemisError
from themis.values import Value, repr_without
from themis_lab.devcluster.spec import ClusterSpec
from themis_lab.testbed.events import Event, event_from_message
from themis_lab.testbed.own_cluster import own_cluster
from themis_lab.testbed.rm_process import RmProcess, rm_command

LOG = logging.getLogger("themis.bench")

GPUS = 2
LEASE = {"duration_s": 8.0, "checkpoint_lead_s": 2.0, "grace_s": 30.0}
POLICY = "tiresias"
"""The app with less GPU time goes first at every lease end. This decides who gets the GPUs, which is not measured."""
_POLL_S = 0.2
_LAST_EVENTS = 12
_CLUSTER_FILE = {
    "name": "bench-2",
    "devices": {"emulated-gpu": {"kind": "gpu", "emulated": True}},
    "machines": [{"prefix": "node", "count": 1, "slots": [GPUS], "device": "emulated-gpu", "racks": ["rack0"]}],
}


class WaitedTooLongError(ThemisError):
    """An expected event did not occur in time."""


class World(Value, frozen=True, kw_only=True):
    """A running ResourceManager.

    Attributes:
        client: A client connected to it.
        process: Its process.
        storage: Folder or URI for checkpoints.
        environment: Variables that locate the storage.
        seen: Events fetched so far.
    """

    client: Connection
    process: RmProcess
    storage: str
    environment: Mapping[str, str]
    seen: list[Event] = field(default_factory=list)

    __repr__ = repr_without("seen")

    def events(self) -> Sequence[Event]:
        """All events so far. Only new ones are fetched: on a small machine the others would slow the measured work."""
        seen = self.seen[-1].sequence if self.seen else 0
        news = self.client.watch(after_sequence=seen, follow=False)
        self.seen.extend(event_from_message(message) for message in news)
        return self.seen

    def wait(self, what: str, limit_s: float, holds: Callable[[Sequence[Event]], bool]) -> None:
        """Return when `holds` is true of the events. Raises WaitedTooLongError after `limit_s` seconds."""
        deadline_s = time.monotonic() + limit_s
        while not holds(events := self.events()):
            self.process.check()
            if time.monotonic() > deadline_s:
                happened = ", ".join(f"{event.kind} {event.app_id}".strip() for event in events[-_LAST_EVENTS:])
                remedy = f"is the machine too busy? What happened last: {happened}"
                raise WaitedTooLongError(f"waited too long until {what}", value=f"{limit_s:g} s", remedy=remedy)
            time.sleep(_POLL_S)


@contextmanager
def local_world(folder: Path) -> Iterator[World]:
    """On this machine, with two emulated GPUs."""
    cluster = folder / "cluster.yaml"
    cluster.write_text(yaml.safe_dump(_CLUSTER_FILE), encoding="utf-8")
    with _running({"engine": "local", "cluster": str(cluster)}, folder, str(folder), {}) as world:
        yield world


@contextmanager
def yarn_world(folder: Path, heartbeat_s: float) -> Iterator[World]:
    """On a development cluster of its own, with one node.

    Args:
        folder: For all that is written here.
        heartbeat_s: Heartbeat interval of app masters and of the node.
    """
    spec = ClusterSpec(gpus=(GPUS,), heartbeat_ms=round(heartbeat_s * 1000))
    with own_cluster(spec, folder / "devcluster", LOG.info) as cluster:
        yarn = {"emulated": True, "heartbeat_s": heartbeat_s, "poll_s": 0.3, "am_memory_mb": 512}
        storage = f"{cluster.fs_uri}/tmp/themis-bench-{uuid.uuid4().hex}"
        settings = {"engine": "yarn", "yarn": {**yarn, "storage": storage}}
        with _running(settings, folder, storage, cluster.exports) as world:
            yield world


@contextmanager
def _running(
    settings: Mapping[str, Any], folder: Path, storage: str, environment: Mapping[str, str]
) -> Iterator[World]:
    """A ResourceManager with these settings, stopped at the end with all its descendants."""
    state = folder / "state"
    path = folder / "rm.yaml"
    common = {"state_dir": str(state), "listen": "127.0.0.1:0", "policy": POLICY, "lease": LEASE, "coalesce_s": 0.2}
    path.write_text(yaml.safe_dump({**common, **settings}), encoding="utf-8")
    process = RmProcess(rm_command(path), uuid.uuid4().hex, folder / "rm.log", environment)
    try:
        address = process.wait_for_address(state / "address")
        with Connection(address) as client:
            client.wait_until_ready(20.0)
            yield World(client=client, process=process, storage=storage, environment=environment)
    finally:
        process.stop()
