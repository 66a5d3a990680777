"""The ResourceManager's settings file: every choice of `themis.choices` by name, and limits, each with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from themis.addresses import is_address
from themis.choices import (
    AppMastersStart,
    Bidders,
    BidValues,
    BundleRule,
    EmptyBundle,
    LateOrder,
    LeaseEnds,
    LeftoverOrder,
    Placer,
    Rounding,
    RunAs,
    TenantOf,
)
from themis.config.cluster_file import DeviceSection
from themis.config.defaults import DEFAULT_POLICY, DEFAULT_RM_ADDRESS
from themis.config.examples import ExampleKind, file_or_example
from themis.config.loader import Section, load
from themis.config.scalars import Variable, VariableName, number


class AuctionSettings(Section):
    """The partial-allocation auction."""

    f: float = Field(default=0.8, ge=0, le=1, description="fairness knob: the worst ceil((1 - f) N) apps bid")
    empty_bundle: EmptyBundle = EmptyBundle.FINITE
    bundle_rule: BundleRule = BundleRule.CONTINUATION
    rounding: Rounding = Rounding.PROBABILISTIC
    payments: bool = True
    bidders: Bidders = Field(default=Bidders.WORST_RHO, description="which apps bid: the worst (1 - f), or all")
    values: BidValues = Field(default=BidValues.RHO, description="what bundles are worth in the auction")
    leftovers: LeftoverOrder = Field(default=LeftoverOrder.RANDOM, description="who gets what the auction leaves")
    solver: str = "exact"
    time_limit_s: float = Field(default=10.0, gt=0)
    keep_markets: int = Field(
        default=20, ge=0, description="number of the newest rounds whose markets are kept as files"
    )

    @model_validator(mode="after")
    def _empty_bundles_can_count(self) -> AuctionSettings:
        if self.bundle_rule is BundleRule.LEXICOGRAPHIC and self.empty_bundle is not EmptyBundle.LEXICOGRAPHIC:
            raise ValueError(
                "bundle_rule lexicographic values an empty bundle at 0: set empty_bundle lexicographic too"
            )
        if self.values is not BidValues.RHO and self.empty_bundle is EmptyBundle.LEXICOGRAPHIC:
            raise ValueError(f"values {self.values} need seconds until an app's end: set empty_bundle finite")
        return self


class LeaseSettings(Section):
    """Leases, in seconds of real time."""

    duration_s: float = Field(default=600.0, gt=0)
    ends: LeaseEnds = LeaseEnds.ALIGNED
    checkpoint_lead_s: float = Field(
        default=30.0, ge=0, description="seconds before leases end at which the round for them begins"
    )
    grace_s: float = Field(
        default=30.0, gt=0, description="seconds past its end after which a lease is revoked by force"
    )

    @model_validator(mode="after")
    def _lead_is_shorter(self) -> LeaseSettings:
        if self.checkpoint_lead_s >= self.duration_s:
            raise ValueError("checkpoint_lead_s must be shorter than the lease's duration_s")
        return self


class RetentionSettings(Section):
    """How long the store keeps the events of ended apps before they are archived."""

    keep_s: float = Field(
        default=604_800.0, gt=0, description="how long events stay in the store after their app's end"
    )
    keep_apps: int = Field(
        default=2_000, ge=0, description="largest number of ended apps whose events stay in the store"
    )
    archive: bool = Field(default=True, description="write events that leave the store to files; if false, delete them")


class StandbySettings(Section):
    """A second ResourceManager that takes over when the first one dies."""

    enabled: bool = Field(
        default=False, description="write the state to a shared folder too, so that a standby can take over"
    )
    folder: Path | None = Field(
        default=None,
        description="folder that all ResourceManagers share; with the engine yarn always `yarn.storage`",
    )
    addresses: tuple[str, ...] = Field(
        default=(),
        description="HOST:PORT of each ResourceManager, for app masters; empty: that of the one that starts them",
    )

    @model_validator(mode="after")
    def _addresses_can_be_used(self) -> StandbySettings:
        for address in self.addresses:
            if not is_address(address):
                raise ValueError(f"addresses: write HOST:PORT, not {address!r}")
        return self


class TlsSettings(Section):
    """TLS of `listen` and `page`: all three files or none. `themis rm init` makes them."""

    certificate: Path | None = Field(
        default=None, description="PEM file of the certificate, with those between it and the authority"
    )
    key: Path | None = Field(default=None, description="PEM file of the certificate's key, without a password")
    ca: Path | None = Field(
        default=None, description="PEM file of the authority that signed it, which clients and app masters trust"
    )

    @model_validator(mode="after")
    def _files_go_together(self) -> TlsSettings:
        if len({file is None for file in (self.certificate, self.key, self.ca)}) > 1:
            raise ValueError("certificate, key and ca go together")
        return self

    @property
    def enabled(self) -> bool:
        """Whether the ResourceManager speaks TLS, and nothing else."""
        return self.certificate is not None


class YarnSettings(Section):
    """The engine `yarn`: where Hadoop is, what is asked of YARN, how our programs reach the nodes."""

    conf_dir: str = Field(default="", description="HADOOP_CONF_DIR; empty: the value in the environment")
    storage: str = Field(
        default="", description="HDFS folder for journals, checkpoints and logs; empty: `themis` in the user's home"
    )
    queue: str = Field(default="", description="YARN queue of all apps; empty: the queue that each app names")
    user: str = Field(
        default="", description="HADOOP_USER_NAME if security is off; empty: the value in the environment"
    )
    as_submitter: bool = Field(
        default=False, description="YARN applications belong to the users who submitted the apps"
    )
    python: str = Field(default="", description="Python interpreter on the nodes; empty: the ResourceManager's")
    archive: str = Field(
        default="", description="URI of an archive on HDFS with a Python interpreter; nodes unpack it as `env`"
    )
    ship: bool = Field(
        default=True, description="send Themis's own packages to the nodes; if false, they must be installed there"
    )
    same_paths: bool = Field(
        default=True,
        description="nodes have Hadoop's configuration, Java and jars at the same paths as this machine",
    )
    environment: dict[VariableName, Variable] = Field(
        default={}, description="more variables for app masters and tasks"
    )
    gpu_plugin: bool = Field(
        default=False, description="YARN's GPU plugin shows each container its own cards, which count from 0 there"
    )
    gpu_resource: str = Field(
        default="",
        description="YARN's resource for GPUs; empty: that of the environment, else `yarn.io/gpu`",
    )
    emulated: bool = Field(default=False, description="the nodes' GPUs are declared by hand and do not exist")
    device: str = Field(
        default="",
        description="device type of nodes without another one; empty: `gpu` if `devices` is empty, else none",
    )
    devices: dict[str, DeviceSection] = Field(default={}, description="device types, as in a cluster file")
    device_attribute: str = Field(
        default="device", min_length=1, description="node attribute whose value is the device type of a node"
    )
    node_label: str = Field(
        default="", description="YARN's node label of the nodes to use; empty: nodes without a label"
    )
    kept_vcores: int = Field(
        default=2, ge=0, description="cores of each CPU node that are left to app masters and other programs"
    )
    poll_s: float = Field(default=1.0, gt=0, description="seconds between two polls of nodes and applications")
    heartbeat_s: float = Field(default=1.0, gt=0, description="app masters' heartbeat to YARN")
    pin_timeout_s: float = Field(default=20.0, gt=0, description="seconds that a request for a container waits")
    am_memory_mb: int = Field(default=768, ge=64)
    am_vcores: int = Field(default=1, ge=1)
    task_memory_mb: int = Field(
        default=1024, ge=64, description="memory of a task's container in MiB, if the app does not set it"
    )
    keytab: str = Field(default="", description="Kerberos keytab, with `principal`")
    principal: str = ""

    @model_validator(mode="after")
    def _kerberos_is_whole(self) -> YarnSettings:
        if bool(self.keytab) != bool(self.principal):
            raise ValueError("keytab and principal go together")
        return self


class DockerSettings(Section):
    """The engine `docker`: which image, how large containers are, what they are given beside."""

    image: str = Field(
        default="themis-engine", description="image of app masters and tasks, with Themis and everything that jobs need"
    )
    python: str = Field(default="python", description="Python interpreter in the image")
    host: str = Field(default="", description="URL of the engine; empty: DOCKER_HOST, else this machine's")
    socket: str = Field(
        default="",
        description="path of the engine's socket on its machine, mounted into app masters; empty: the path in the URL",
    )
    network: str = Field(default="", description="an existing bridge network; empty: create one for the run")
    user: str = Field(default="", description="UID:GID in containers; empty: the ResourceManager's")
    am_memory_mb: int = Field(default=512, ge=64)
    task_memory_mb: int = Field(
        default=1024, ge=64, description="memory of a task's container in MiB, if the app does not set it"
    )
    task_shm_mb: int = Field(
        default=0, ge=0, description="shared memory of a task's container; 0: the engine's default"
    )
    runtime: str = Field(default="", description="the engine's runtime for tasks, by name; empty: its default")
    volumes: tuple[str, ...] = Field(
        default=(), description="more volumes of app masters and tasks, each `SOURCE:TARGET` or `SOURCE:TARGET:ro`"
    )
    environment: dict[VariableName, Variable] = Field(
        default={}, description="more variables for app masters and tasks"
    )

    @model_validator(mode="after")
    def _volumes_are_binds(self) -> DockerSettings:
        for volume in self.volumes:
            if not re.fullmatch(r"/[^:]*:/[^:]*(:ro|:rw)?", volume):
                raise ValueError(f"volumes: write SOURCE:TARGET or SOURCE:TARGET:ro, with whole paths, not {volume!r}")
        return self

    @model_validator(mode="after")
    def _user_is_numbers(self) -> DockerSettings:
        if self.user and not re.fullmatch(r"\d+:\d+", self.user):
            raise ValueError(f"user: write UID:GID in numbers, not {self.user!r}")
        return self


class RmSettings(Section):
    """A ResourceManager."""

    cluster: Path | None = Field(
        default=None,
        description="a cluster file, or an example's name such as `testbed-64`; with the engine yarn, what YARN's node"
        " reports lack: slots and racks",
    )
    standby: StandbySettings = StandbySettings()
    yarn: YarnSettings = YarnSettings()
    docker: DockerSettings = DockerSettings()
    state_dir: Path = Path("out/rm")
    listen: str = DEFAULT_RM_ADDRESS
    advertise: str = Field(default="", description="host at which app masters reach it; empty: the host of `listen`")
    page: str = Field(default="", description="HOST:PORT of the web page and REST; empty: none")
    tls: TlsSettings = TlsSettings()
    admins: tuple[str, ...] = Field(
        default=(), description="users who may do everything, in addition to the user of the ResourceManager"
    )
    hooks: tuple[Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=2000)], ...] = Field(
        default=(), max_length=10, description="addresses (http or https) that get a POST when an app has ended"
    )
    insecure: bool = Field(
        default=False,
        description="allow `listen` and `page` beyond loopback without `tls`; tokens travel there without encryption",
    )
    anonymous: bool = Field(
        default=False, description="callers without a token count as the user of the ResourceManager"
    )
    engine: Literal["local", "yarn", "docker"] = "local"
    run_as: RunAs | None = Field(
        default=None,
        description="as which system user apps run with the engine `local`: `submitter`, which needs root and refuses"
        " users without an account, or `service`; none: as the submitter where that is possible, else as the service",
    )
    policy: str = DEFAULT_POLICY
    queues: Path | None = Field(
        default=None, description="file of queues, users, weights and limits; none: one queue without limits"
    )
    tenant_of: TenantOf = Field(default=TenantOf.USER, description="who shares the cluster under `oef` and `allox`")
    tenant_weights: dict[str, Annotated[float, Field(gt=0, strict=True), BeforeValidator(number)]] = Field(
        default={}, description="weights of tenants by user, queue or app"
    )
    placer: Placer = Field(default=Placer.COMPACT, description="how gangs are placed under `oef`")
    cap_demand: bool = Field(
        default=False, description="a tenant's share under `oef` has no more GPUs than its jobs can use"
    )
    profiling_runs: bool = Field(
        default=False,
        description="an app runs on every device type before it shares the cluster under `oef` (unless it is too short "
        "for it) or `allox`",
    )
    alpha: float = Field(default=0.1, ge=0, le=1, description="share of the users whose jobs `allox` considers first")
    late_order: LateOrder = Field(
        default=LateOrder.SHORTEST,
        description="which of the jobs that have waited for more than 500 s `allox_plus` starts first",
    )
    preemption_margin: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="how much less work an app that holds its GPUs counts as having left under `fair_finish`",
    )
    auction: AuctionSettings = AuctionSettings()
    lease: LeaseSettings = LeaseSettings()
    retention: RetentionSettings = RetentionSettings()
    coalesce_s: float = Field(
        default=1.0, ge=0, description="reasons for a round within this many seconds cause one round"
    )
    report_deadline_s: float = Field(
        default=2.0, gt=0, description="a round waits for reports until none has come for this many seconds"
    )
    bid_deadline_s: float = Field(
        default=5.0, gt=0, description="a round waits for bids until none has come for this many seconds"
    )
    heartbeat_s: float = Field(
        default=1.0, gt=0, description="how often app masters report progress; more than 500 of them do so less often"
    )
    am_expiry_s: float = Field(
        default=30.0, gt=0, description="seconds without a message after which an app master counts as lost"
    )
    am_start_s: float = Field(
        default=300.0,
        gt=0,
        description="seconds after which an app master that has not registered counts as lost; time in the engine's"
        " queue does not count",
    )
    unfit_s: float = Field(
        default=30.0, ge=0, description="seconds that GPUs stay closed after the engine had no room for a container"
    )
    app_masters: AppMastersStart | None = Field(
        default=None,
        description="when an app master starts: `at_submit`, or `at_grant`, the default except on YARN; until its first"
        " grant one agent host answers for all waiting apps",
    )
    am_idle_s: float = Field(
        default=600.0,
        gt=0,
        description="seconds without GPUs after which an app master ends until its app gets some, with `app_masters:"
        " at_grant`",
    )
    am_starts_at_once: int = Field(default=16, ge=1, description="how many app masters may be starting at a time")
    am_max_attempts: int = Field(default=2, ge=1)
    am_failures_window_s: float = Field(
        default=3600.0, gt=0, description="seconds after which the loss of an app master no longer counts"
    )
    task_log_mb: int = Field(
        default=1024,
        ge=0,
        description="MiB of disk that the log of a task may take; beyond them the newest half is kept; 0: all is kept",
    )
    rm_absence_s: float = Field(
        default=21_600.0,
        gt=0,
        description="seconds that app masters and their tasks go on without the ResourceManager before they end",
    )
    time_scale: float = Field(default=1.0, gt=0, description="factor by which replayed jobs run faster")
    seed: int = 0
    validate_state: bool = Field(default=False, description="check every invariant after every step")

    @model_validator(mode="after")
    def _machines_come_from_somewhere(self) -> RmSettings:
        if self.cluster is None and self.engine != "yarn":
            raise ValueError(f"the engine {self.engine} needs a cluster file: set `cluster`")
        return self

    @model_validator(mode="after")
    def _standby_has_a_folder(self) -> RmSettings:
        if self.engine == "yarn" and self.standby.folder is not None:
            raise ValueError("standby.folder cannot be set with the engine yarn, whose standby uses yarn.storage")
        if self.engine != "yarn" and self.standby.enabled != (self.standby.folder is not None):
            raise ValueError(f"with the engine {self.engine}, standby.enabled and standby.folder go together")
        return self

    @model_validator(mode="after")
    def _submitters_have_processes(self) -> RmSettings:
        if self.run_as is not RunAs.SUBMITTER:
            return self
        if self.engine != "local":
            other = "set yarn.as_submitter" if self.engine == "yarn" else "containers have docker.user"
            raise ValueError(f"run_as submitter needs the engine local; with the engine {self.engine} {other}")
        if self.standby.enabled:
            raise ValueError(
                "run_as submitter cannot be used with a standby, whose machines may number users otherwise"
            )
        return self

    @property
    def starts_at_grant(self) -> bool:
        """Whether app masters start with the first grant."""
        # On YARN an app master may wait in a queue, and the GPUs of its app would idle meanwhile.
        default = AppMastersStart.AT_SUBMIT if self.engine == "yarn" else AppMastersStart.AT_GRANT
        return (self.app_masters or default) is AppMastersStart.AT_GRANT

    @property
    def exposure(self) -> str:
        """What `insecure` and `anonymous` allow, for logs and pages; empty if neither is set."""
        if self.anonymous:
            return f"everybody who reaches {self.listen} can do everything"
        encrypted = self.tls.enabled or not self.insecure
        return "" if encrypted else "tokens travel over the network without encryption"

    @property
    def files_dir(self) -> Path:
        """The folder of apps' files and of archives: `standby.folder` if there is one, else `state_dir`."""
        return self.standby.folder or self.state_dir

    def heartbeat_time_s(self, app_masters: int) -> float:
        """Seconds between two heartbeats of each of this many app masters.

        Together they send 500 heartbeats in `heartbeat_s`, so that these do not fill the service's loop. Each sends
        one at least six times in the time after which it counts as lost.

        >>> RmSettings(cluster=Path("c"), heartbeat_s=1.0, am_expiry_s=30.0).heartbeat_time_s(2000)
        4.0
        """
        return max(self.heartbeat_s, min(self.heartbeat_s * app_masters / 500, self.am_expiry_s / 6))

    @staticmethod
    def answer_time_s(deadline_s: float, apps: int) -> float:
        """Seconds after which a round goes on though answers still come in: `deadline_s`, and as much for 100 apps.

        One loop asks all apps and reads all answers, so of 1,000 apps the last is asked later than of ten.
        """
        return deadline_s * (1.0 + apps / 100)


def load_rm_settings(path: Path) -> RmSettings:
    """Read a settings file. Relative paths in it are relative to its folder; the default `state_dir` is not in it.

    A `cluster` without a folder and an ending may be the name of an example; a file of this name wins.
    """
    settings = load(RmSettings, path)
    folder = path.parent
    inside: dict[str, object] = {}
    if "state_dir" in settings.model_fields_set:
        inside["state_dir"] = folder / settings.state_dir
    elif settings.engine != "local":
        # One engine must not take up the apps of another.
        inside["state_dir"] = settings.state_dir.with_name(f"rm-{settings.engine}")
    if settings.standby.folder is not None:
        inside["standby"] = settings.standby.model_copy(update={"folder": folder / settings.standby.folder})
    if settings.cluster is not None:
        inside["cluster"] = file_or_example(settings.cluster, ExampleKind.CLUSTER, folder)
    if settings.queues is not None:
        inside["queues"] = folder / settings.queues
    if settings.tls.enabled:
        files = settings.tls.model_dump()
        inside["tls"] = settings.tls.model_copy(update={name: folder / file for name, file in files.items()})
    if settings.yarn.keytab:
        inside["yarn"] = settings.yarn.model_copy(update={"keytab": str(folder / settings.yarn.keytab)})
    return settings.model_copy(update=inside)
