"""One Docker engine through its SDK: containers by labels, started whole or not at all, ended, removed; a network.

The ResourceManager's engine and the app master's runtime both need it and may not take it from each other, as with
`themis.processes`. The SDK is an extra: only those two import this module, and only when the engine is `docker`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from themis.errors import InputError, ThemisError
from themis.threads import Threads
from themis.values import Value, repr_without

try:
    from docker.client import DockerClient
    from docker.errors import APIError, DockerException, NotFound
    from docker.types import DeviceRequest, Mount
    from requests import RequestException
    from urllib3.exceptions import HTTPError
except ModuleNotFoundError as error:
    raise InputError(
        "the engine docker needs Docker's SDK", value=error.name, remedy="pip install 'themis-scheduler[docker]'"
    ) from error

LOG = logging.getLogger("themis.docker")

RUN_LABEL = "themis.run"
APP_LABEL = "themis.app"
ATTEMPT_LABEL = "themis.attempt"
ROLE_LABEL = "themis.role"
APP_MASTER, TASK = "app-master", "task"
CONTAINER_SOCKET = "/var/run/docker.sock"
"""Where a container that is given the engine's socket has it: where the SDK looks by itself."""

_CONFLICT = 409
_CALLS = 8
_CLEAN_PASSES = 2
_PASS_S = 0.1


class DockerError(ThemisError, OSError):
    """The Docker engine does not answer, or did not do what it was asked to."""


class Bind(Value, frozen=True, kw_only=True):
    """A folder or file of the engine's machine, seen in a container; it must be there."""

    source: str
    target: str


class ContainerSpec(Value, frozen=True, kw_only=True):
    """A container to be started.

    Attributes:
        command: Program and arguments; no shell.
        network: Name of a network that there is.
        user: `UID:GID`.
        groups: More groups of that user, by number.
        volumes: More binds as a user writes them, `SOURCE:TARGET[:ro]`.
        memory_mb: What it may use, swap included; past it the kernel kills.
        cpus: Cores that it may use; 0 for no limit.
        cpuset: The numbers of these cores, separated by commas; empty for any.
        shm_mb: Size of its shared memory; 0 leaves it to the engine.
        device_ids: Cards of the engine's machine that it may use, as its driver numbers them.
        runtime: The engine's runtime, by name; empty for its default.
    """

    name: str
    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    network: str
    working_dir: str
    user: str
    groups: tuple[int, ...] = ()
    binds: tuple[Bind, ...] = ()
    volumes: tuple[str, ...] = ()
    memory_mb: int
    cpus: float = 0.0
    cpuset: str = ""
    shm_mb: int = 0
    device_ids: tuple[str, ...] = ()
    runtime: str = ""

    __repr__ = repr_without("environment")


class Container(Value, frozen=True, kw_only=True):
    """A container that there is. `pid` is that of its first process on the engine's machine, 0 where not known."""

    container_id: str
    labels: Mapping[str, str]
    running: bool
    pid: int = 0


class ContainerEnd(Value, frozen=True, kw_only=True):
    """How a container ended. `exit_code` is None if it was removed before the code could be read."""

    exit_code: int | None
    out_of_memory: bool = False


class DockerHost:
    """One Docker engine. Every method blocks, may be called in any thread, and raises DockerError.

    Args:
        client: The SDK's.
    """

    def __init__(self, client: DockerClient) -> None:
        self._client = client
        self.threads = Threads("docker", _CALLS)
        """For calls from an event loop."""

    @classmethod
    def connect(cls, url: str = "") -> DockerHost:
        """The engine at this URL; empty: that of DOCKER_HOST, else of this machine."""
        with _as_docker_error("the Docker engine does not answer", url or None):
            client = DockerClient(base_url=url) if url else DockerClient.from_env()
            client.ping()
        return cls(client)

    def need_image(self, image: str) -> None:
        """Raise InputError when the engine does not have the image."""
        with _as_docker_error("the Docker engine does not list its images"):
            try:
                self._client.images.get(image)
            except NotFound:
                remedy = "build or pull it: see docs/how-to/docker.md"
                raise InputError("the Docker engine has no such image", value=image, remedy=remedy) from None

    # ---- containers ----

    def start(self, spec: ContainerSpec) -> Container:
        """Make and start a container; when it cannot be started, what was made of it is removed again."""
        with _as_docker_error("cannot make the container", spec.name):
            container = self._client.containers.create(**_arguments(spec))
        try:
            with _as_docker_error("cannot start the container", spec.name):
                container.start()
                container.reload()
        except DockerError:
            # Its maker says why it failed; a leftover that cannot be removed either is found by its labels later.
            with contextlib.suppress(DockerError):
                self.remove(container.id)
            raise
        return Container(
            container_id=container.id, labels=spec.labels, running=True, pid=int(container.attrs["State"]["Pid"])
        )

    def find(self, labels: Mapping[str, str]) -> tuple[Container, ...]:
        """The containers with all these labels, ended ones too; app masters first."""
        with _as_docker_error("the Docker engine does not list its containers"):
            listed = self._client.api.containers(all=True, filters={"label": _filter(labels)})
        found = [
            Container(container_id=each["Id"], labels=each["Labels"], running=each["State"] == "running")
            for each in listed
        ]
        return tuple(sorted(found, key=lambda each: each.labels.get(ROLE_LABEL) != APP_MASTER))

    def end_of(self, container_id: str) -> ContainerEnd | None:
        """How a started container ended; None while anything of it runs."""
        with _as_docker_error("the Docker engine does not describe a container", container_id):
            try:
                state = self._client.api.inspect_container(container_id)["State"]
            except NotFound:
                return ContainerEnd(exit_code=None)
        if state["Running"]:
            return None
        return ContainerEnd(exit_code=int(state["ExitCode"]), out_of_memory=bool(state["OOMKilled"]))

    def ends(self, labels: Mapping[str, str]) -> Iterator[str]:
        """Ids of containers with these labels as they end or are removed, for as long as the connection holds."""
        wanted = {"type": "container", "event": ["die", "destroy"], "label": _filter(labels)}
        with _as_docker_error("the Docker engine sends no events"):
            for event in self._client.events(filters=wanted, decode=True):
                yield str(event["Actor"]["ID"])

    def last_words(self, container_id: str, lines: int = 5) -> str:
        """The end of what a container's own program wrote; empty where that cannot be had."""
        try:
            with _as_docker_error("no log of a container", container_id):
                return str(self._client.api.logs(container_id, tail=lines).decode(errors="replace")).strip()
        except DockerError:
            return ""

    def kill(self, container_id: str) -> None:
        """SIGKILL to all of a container; one that has ended is no error."""
        with _as_docker_error("cannot kill a container", container_id), _gone_already():
            self._client.api.kill(container_id)

    def remove(self, container_id: str) -> None:
        """Kill and remove a container; one that is gone, or just being removed, is no error."""
        with _as_docker_error("cannot remove a container", container_id), _gone_already():
            self._client.api.remove_container(container_id, force=True, v=True)

    def remove_all(self, labels: Mapping[str, str], *, wait_s: float = 30.0) -> None:
        """Kill and remove all containers with these labels, app masters first, until none is left."""
        deadline_s = time.monotonic() + wait_s
        # More than one pass: an app master that is killed may have had one made that comes to be only now.
        clean = 0
        while clean < _CLEAN_PASSES:
            found = self.find(labels)
            clean = 0 if found else clean + 1
            for each in found:
                self.remove(each.container_id)
            if found and time.monotonic() > deadline_s:
                raise DockerError("containers cannot be removed", value=[each.container_id[:12] for each in found])
            time.sleep(_PASS_S)

    # ---- networks ----

    def ensure_network(self, name: str, labels: Mapping[str, str]) -> str:
        """The address by which containers of this network reach the engine's machine; made, labelled, where missing."""
        with _as_docker_error("cannot make the network", name):
            # The engine finds by a part of the name.
            mine = [each for each in self._client.networks.list(names=[name]) if each.name == name]
            network = mine[0] if mine else self._client.networks.create(name, driver="bridge", labels=dict(labels))
            network.reload()
        return _gateway(name, network.attrs.get("IPAM", {}).get("Config") or [])

    def remove_networks(self, labels: Mapping[str, str]) -> None:
        """Remove the networks with these labels."""
        with _as_docker_error("cannot remove a network"):
            for network in self._client.networks.list(filters={"label": _filter(labels)}):
                with _gone_already():
                    network.remove()

    def close(self) -> None:
        """Disconnect."""
        self.threads.close()
        self._client.close()


def _arguments(spec: ContainerSpec) -> dict[str, Any]:
    """What the SDK's `containers.create` is given."""
    memory = {"mem_limit": f"{spec.memory_mb}m", "memswap_limit": f"{spec.memory_mb}m"}
    optional: dict[str, Any] = {
        "nano_cpus": round(spec.cpus * 1e9),
        "cpuset_cpus": spec.cpuset,
        "shm_size": f"{spec.shm_mb}m" if spec.shm_mb else None,
        "runtime": spec.runtime,
        "group_add": list(spec.groups),
        "volumes": list(spec.volumes),
        "device_requests": [DeviceRequest(device_ids=list(spec.device_ids), capabilities=[["gpu"]])]
        if spec.device_ids
        else None,
    }
    return {
        "image": spec.image,
        "command": list(spec.command),
        "name": spec.name,
        "environment": dict(spec.environment),
        "labels": dict(spec.labels),
        "network": spec.network,
        "working_dir": spec.working_dir,
        "user": spec.user,
        # An init process must reap a task's orphans, and forward signals.
        "init": True,
        "mounts": [Mount(target=each.target, source=each.source, type="bind") for each in spec.binds],
        **memory,
        **{name: value for name, value in optional.items() if value},
    }


def _filter(labels: Mapping[str, str]) -> list[str]:
    # Without one, every container of the machine would be found, and removed.
    if not labels or not all(labels.values()):
        raise InputError("containers are found by labels with a value", value=dict(labels))
    return [f"{name}={value}" for name, value in labels.items()]


def _gateway(name: str, configurations: Sequence[Mapping[str, str]]) -> str:
    for each in configurations:
        subnet = ipaddress.ip_network(each["Subnet"])
        if subnet.version == 4:
            # If the engine chose it, some versions do not report it: it is the first address.
            return each.get("Gateway") or str(subnet[1])
    raise InputError("the network has no IPv4 addresses", value=name, remedy="name another, or none, as docker.network")


@contextlib.contextmanager
def _as_docker_error(what: str, value: object = None) -> Iterator[None]:
    """What the SDK and the library below it raise, as DockerError."""
    try:
        yield
    except (DockerException, RequestException, HTTPError) as error:
        said = error.explanation if isinstance(error, APIError) else None
        raise DockerError(what, value=value, remedy=str(said or error).strip()) from error


@contextlib.contextmanager
def _gone_already() -> Iterator[None]:
    """Ignore errors of a container that has ended, is gone, or is being removed by another client."""
    try:
        yield
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
