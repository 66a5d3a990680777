"""What we say to YARN and what it says to us, as plain values; no Java object shows but the handle in `Container`.

Memory is in MB of 2^20 bytes, times in seconds since the epoch unless the name says otherwise, GPUs are counts of the
resource `yarn.io/gpu`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import field

from themis.values import Value, repr_without


class NodeState(Enum):
    """States of a NodeManager, as the ResourceManager sees it."""

    NEW = "NEW"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DECOMMISSIONING = "DECOMMISSIONING"
    DECOMMISSIONED = "DECOMMISSIONED"
    LOST = "LOST"
    REBOOTED = "REBOOTED"
    SHUTDOWN = "SHUTDOWN"


class AppState(Enum):
    """States of a YARN application."""

    NEW = "NEW"
    NEW_SAVING = "NEW_SAVING"
    SUBMITTED = "SUBMITTED"
    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"

    @property
    def is_final(self) -> bool:
        """Whether the application is over."""
        return self in (AppState.FINISHED, AppState.FAILED, AppState.KILLED)


class FinalStatus(Enum):
    """How a YARN application ended, by its app master's word or for want of it."""

    UNDEFINED = "UNDEFINED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    ENDED = "ENDED"


class ContainerState(Enum):
    """States of a container, as its NodeManager or the ResourceManager reports them."""

    NEW = "NEW"
    SCHEDULED = "SCHEDULED"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"


class ResourceKind(Enum):
    """Whether a NodeManager only downloads a file or unpacks it too."""

    FILE = "FILE"
    ARCHIVE = "ARCHIVE"


class Visibility(Enum):
    """Who shares a NodeManager's copy of a file: all users, one user's applications, one application."""

    PUBLIC = "PUBLIC"
    PRIVATE = "PRIVATE"
    APPLICATION = "APPLICATION"


class ExitCode:
    """Exit codes that YARN gives in place of a process's own: those of `ContainerExitStatus` that matter here."""

    ABORTED = -100
    DISKS_FAILED = -101
    PREEMPTED = -102
    KILLED_EXCEEDED_VMEM = -103
    KILLED_EXCEEDED_PMEM = -104
    KILLED_BY_AM = -105
    KILLED_BY_RM = -106


class NodeReport(Value, frozen=True, kw_only=True):
    """A NodeManager.

    Attributes:
        node_id: "host:port".
        attributes: Values of its node attributes by full name, for example `{"nm.yarn.io/device": "v100"}`.
        health: Empty for a healthy node.
        labels: Its node labels. YARN gives a node at most one.
    """

    node_id: str
    host: str
    rack: str
    state: NodeState
    gpus: int
    used_gpus: int
    memory_mb: int
    used_memory_mb: int
    vcores: int
    used_vcores: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    http_address: str = ""
    health: str = ""
    labels: frozenset[str] = frozenset()


class AppReport(Value, frozen=True, kw_only=True):
    """A YARN application. `attempt` counts from 1; 0 while there is none. `progress` is in [0, 1]."""

    yarn_app_id: str
    name: str
    user: str
    queue: str
    app_type: str
    tags: frozenset[str]
    state: AppState
    final_status: FinalStatus
    progress: float
    tracking_url: str
    am_host: str
    am_rpc_port: int
    attempt: int
    diagnostics: str
    started_at_s: float
    finished_at_s: float | None


class AttemptReport(Value, frozen=True, kw_only=True):
    """An attempt of a YARN application. `number` counts from 1."""

    number: int
    diagnostics: str


class QueueReport(Value, frozen=True, kw_only=True):
    """A queue. Only one without children accepts apps.

    Attributes:
        max_capacity_share: Of its parent's resources, in [0, 1].
        max_gpus: GPUs that its apps may use together. None if YARN's scheduler does not report it.
        path: The names from the root queue to it, with dots between them. Empty if YARN does not report it.
    """

    name: str
    is_running: bool
    max_capacity_share: float
    children: tuple[str, ...]
    max_gpus: int | None = None
    path: str = ""

    def is_called(self, name: str) -> bool:
        """Whether a user may mean this queue by a name: its own name, or its path with or without the root."""
        return name in (self.name, self.path, self.path.removeprefix("root."))


class LocalResource(Value, frozen=True, kw_only=True):
    """A file that a NodeManager brings into the container's working folder under `name`.

    `size_bytes` and `modified_ms` must be those of the file's status, or the NodeManager refuses it. An archive is
    unpacked into a folder called `name`.
    """

    name: str
    uri: str
    kind: ResourceKind
    size_bytes: int
    modified_ms: int
    visibility: Visibility = Visibility.APPLICATION


class ProcessLaunch(Value, frozen=True, kw_only=True):
    """What a NodeManager starts in a container.

    Args:
        commands: Shell lines, joined by blanks: make them with `themis.hadoop.quoting.command_line`.
        environment: Values that the process gets letter by letter.
        environment_templates: Values that the node's shell expands: `{{PWD}}/lib`, `$PATH`; YARN's own variables
            are set before them. A name may stand in one of the two only.
        resources: Files to bring.
        tokens: Serialised credentials of the process (see `themis.hadoop.security`); empty where security is off.
    """

    commands: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    environment_templates: Mapping[str, str] = field(default_factory=dict)
    resources: tuple[LocalResource, ...] = ()
    tokens: bytes = b""

    __repr__ = repr_without("tokens")


class AppSubmission(Value, frozen=True, kw_only=True):
    """A YARN application to be: its app master's process and how YARN treats it.

    Args:
        name: Shown in lists.
        launch: The app master's process.
        memory_mb: Of the app master's container.
        queue: A leaf queue.
        app_type: Shown in lists, at most 20 characters.
        tags: For finding it again; YARN keeps them in lower case, at most 10 of at most 100 ASCII characters.
        priority: Higher goes first within a queue, if the cluster has a maximum above 0.
        max_attempts: Starts of the app master in all; the cluster's `am.max-attempts` caps it.
        keep_containers: Containers of a dead attempt pass to the next.
        attempt_failures_validity_ms: Failures longer ago than this do not count against `max_attempts`; -1: all count.
        vcores: Of the app master's container.
        user: On whose behalf; the client's own user when empty. With Kerberos the client must be a proxy user of
            Hadoop's (`hadoop.proxyuser.*`).
        node_label: Of the nodes for all its containers. Empty for nodes without a label, or the queue's own.
        view_acl, modify_acl: Who beside the owner may look, and change or kill: "user1,user2 group1,group2" or "*".
    """

    name: str
    launch: ProcessLaunch
    memory_mb: int
    queue: str = "default"
    app_type: str = "THEMIS"
    tags: frozenset[str] = frozenset()
    priority: int = 0
    max_attempts: int = 2
    keep_containers: bool = True
    attempt_failures_validity_ms: int = -1
    vcores: int = 1
    node_label: str = ""
    user: str = ""
    view_acl: str = ""
    modify_acl: str = ""


class ContainerAsk(Value, frozen=True, kw_only=True):
    """One container wanted on one host and nowhere else. `allocation_request_id` (>= 1) is unique among the asks."""

    allocation_request_id: int
    host: str
    gpus: int
    memory_mb: int
    vcores: int = 1
    priority: int = 0


class AskRefusal(Value, frozen=True, kw_only=True):
    """An ask that YARN refused, as no node is that large now; it is withdrawn."""

    allocation_request_id: int
    reason: str


class Container(Value, frozen=True, kw_only=True):
    """A container that is ours. `raw` is Hadoop's own object: only the client that gave it may use it."""

    container_id: str
    host: str
    node_id: str
    gpus: int
    memory_mb: int
    vcores: int
    allocation_request_id: int
    raw: Any

    __repr__ = repr_without("raw")


class ContainerEnd(Value, frozen=True, kw_only=True):
    """A container is over: its process is gone, or its node is. `exit_code` is the process's own or an `ExitCode`."""

    container_id: str
    exit_code: int
    diagnostics: str


class ContainerStatus(Value, frozen=True, kw_only=True):
    """A container as its NodeManager sees it; `exit_code` counts only when it is complete."""

    container_id: str
    state: ContainerState
    exit_code: int
    diagnostics: str


class AllocateReply(Value, frozen=True, kw_only=True):
    """News of one heartbeat.

    Args:
        granted: Containers that answer a pending ask; each ask is answered once.
        ended: Containers that have ended, in the order reported, including released and never launched ones.
        nodes: Nodes whose state changed since the last heartbeat, with the state they have now.
        recovered: Containers of an earlier attempt whose nodes reported after we registered.
        preempted: Ids of containers that YARN itself wants or takes back.
        unasked: Ids of granted containers that answer no pending ask; they are released already.
        refused: Asks that YARN refused.
        headroom_gpus: GPUs that the queue and the user may use beyond those that they use. A queue that may grow
            beyond its capacity grants more. None if unknown.
    """

    granted: tuple[Container, ...] = ()
    ended: tuple[ContainerEnd, ...] = ()
    nodes: tuple[NodeReport, ...] = ()
    recovered: tuple[Container, ...] = ()
    preempted: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    refused: tuple[AskRefusal, ...] = ()
    headroom_gpus: int | None = None

    @property
    def lost_nodes(self) -> tuple[NodeReport, ...]:
        """Those of the changed nodes that take no containers any more."""
        usable = (NodeState.NEW, NodeState.RUNNING, NodeState.DECOMMISSIONING)
        return tuple(node for node in self.nodes if node.state not in usable)


class Registration(Value, frozen=True, kw_only=True):
    """What an app master learns when it registers: containers of earlier attempts, and the largest ask allowed."""

    previous: tuple[Container, ...]
    max_memory_mb: int
    max_vcores: int
    max_gpus: int
