"""The cluster, its apps and machines in the documents of YARN's ResourceManager, for tools that read those.

The schema is that of "ResourceManager REST API's" in the documents of Hadoop 3.3. Times are milliseconds since the
epoch, progress is a percentage, and keys that Themis has nothing for hold YARN's own value for none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import themis
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.web.page_state import GpuState, MachineState, PageState
from themis.cluster import Machine
from themis.errors import InputError
from themis.lifecycle import AppState, JobState
from themis.values import Value
from themis.web.formatting import finite

Document = dict[str, object]

MAX_APPS = 1_000
"""The most apps of an answer, the newest ones."""

_FINAL = {AppState.FINISHED: "SUCCEEDED", AppState.FAILED: "FAILED", AppState.KILLED: "KILLED"}
_AT_WORK = frozenset((JobState.STARTING, JobState.RUNNING, JobState.CHECKPOINTING))
_APPLICATION = re.compile(r"application_[0-9]+_([0-9]{4,9})")


def cluster_id(page_state: PageState) -> int:
    """The first start of the ResourceManager, in milliseconds, which is in the ids of its applications."""
    return int(1000 * page_state.manager.arbiter.grid_origin_s)


def app_reference(text: str) -> str:
    """Return the id of an app for YARN's id of it; any other text stays, and may be an id or a name."""
    found = _APPLICATION.fullmatch(text)
    return f"app-{int(found[1]):04d}" if found else text


def info_document(page_state: PageState) -> Document:
    """The answer of `/ws/v1/cluster/info`."""
    version = themis.__version__
    return {
        "clusterInfo": {
            "id": cluster_id(page_state),
            "startedOn": cluster_id(page_state),
            "state": "STARTED",
            "haState": "ACTIVE",
            "rmStateStoreName": "themis",
            "resourceManagerVersion": version,
            "resourceManagerBuildVersion": f"Themis {version}, policy {page_state.policy}",
            "resourceManagerVersionBuiltOn": "N/A",
            "hadoopVersion": "N/A",
            "hadoopBuildVersion": "N/A",
            "hadoopVersionBuiltOn": "N/A",
            "haZooKeeperConnectionState": "ResourceManager HA is not enabled.",
        }
    }


def metrics_document(page_state: PageState) -> Document:
    """The answer of `/ws/v1/cluster/metrics`."""
    entries, machines = page_state.manager.entries, page_state.manager.arbiter.cluster.machines
    nodes = [_NodeUse.of(page_state, machine) for machine in machines]
    active = [node for node in nodes if node.state in ("RUNNING", "DECOMMISSIONING")]
    total_mb, total_cores = sum(node.machine.memory_mb for node in active), sum(node.machine.cpus for node in active)
    used_mb, used_cores = sum(node.used_mb for node in active), sum(node.used_cores for node in active)
    return {
        "clusterMetrics": {
            "appsSubmitted": entries.count(),
            "appsCompleted": entries.count([AppState.FINISHED]),
            "appsPending": entries.count([AppState.SUBMITTED, AppState.ACCEPTED, AppState.PAUSED]),
            "appsRunning": entries.count([AppState.RUNNING]),
            "appsFailed": entries.count([AppState.FAILED]),
            "appsKilled": entries.count([AppState.KILLED]),
            "reservedMB": 0,
            "availableMB": max(0, total_mb - used_mb),
            "allocatedMB": used_mb,
            "totalMB": total_mb,
            "reservedVirtualCores": 0,
            "availableVirtualCores": max(0, total_cores - used_cores),
            "allocatedVirtualCores": used_cores,
            "totalVirtualCores": total_cores,
            "containersAllocated": sum(node.tasks for node in nodes),
            "containersReserved": 0,
            "containersPending": 0,
            "totalNodes": len(nodes),
            "activeNodes": len(active),
            "lostNodes": sum(node.state == "LOST" for node in nodes),
            "unhealthyNodes": 0,
            "decommissioningNodes": sum(node.state == "DECOMMISSIONING" for node in nodes),
            "decommissionedNodes": sum(node.state == "DECOMMISSIONED" for node in nodes),
            "rebootedNodes": 0,
            "shutdownNodes": 0,
        }
    }


# ---- apps -----------------------------------------------------------------------------------------------------------


def apps_document(page_state: PageState, query: Mapping[str, str]) -> Document:
    """The answer of `/ws/v1/cluster/apps`, newest first; archived apps are not in it.

    Args:
        page_state: The state to show.
        query: YARN's filters: `states`, `state`, `finalStatus`, `user`, `queue`, `limit`, `applicationTypes`,
            `startedTimeBegin`, `startedTimeEnd`, `finishedTimeBegin`, `finishedTimeEnd`. Others are ignored.

    Raises:
        InputError: A filter has an invalid value.
    """
    tests = [made(query[name]) for name, made in _FILTERS.items() if query.get(name)]
    limit = min(_whole("limit", query["limit"]), MAX_APPS) if query.get("limit") else MAX_APPS
    shown = (app_element(page_state, page_state.seen(entry, whole=False)) for entry in _newest(page_state))
    found = list(islice((app for app in shown if all(test(app) for test in tests)), limit))
    return {"apps": {"app": found} if found else None}


def app_document(page_state: PageState, entry: AppEntry) -> Document:
    """The answer of `/ws/v1/cluster/apps/{appid}`."""
    return {"app": app_element(page_state, page_state.seen(entry, whole=False))}


def state_of(entry: AppEntry) -> str:
    """The state of an app in YARN's words, which know no pause."""
    return AppState.ACCEPTED.value if entry.state is AppState.PAUSED else entry.state.value


def app_element(page_state: PageState, entry: AppEntry) -> Document:
    """One app."""
    gpus, tasks = page_state.gpus_held(entry), _tasks(entry)
    ended_ms = _ms(entry.finished_at_s)
    resources = entry.spec.resources
    share = 100.0 * gpus / max(1, page_state.manager.arbiter.cluster.gpus)
    return {
        "id": f"application_{cluster_id(page_state)}_{entry.number:04d}",
        "user": entry.spec.user,
        "name": entry.spec.name,
        "queue": page_state.manager.app_masters.launches.queue(entry),
        "state": state_of(entry),
        "finalStatus": _FINAL.get(entry.state, "UNDEFINED"),
        "progress": 100.0 * (finite(entry.progress) or 0.0),
        "trackingUI": "History" if entry.ended else "ApplicationMaster",
        "trackingUrl": page_state.manager.page_of(entry.app_id),
        "diagnostics": "paused" if entry.state is AppState.PAUSED else entry.diagnostics,
        "clusterId": cluster_id(page_state),
        "applicationType": "THEMIS",
        "applicationTags": entry.app_id,
        "priority": 0,
        "startedTime": _ms(entry.submitted_at_s),
        "launchTime": _ms(entry.started_at_s),
        "finishedTime": ended_ms,
        "elapsedTime": (ended_ms or _ms(page_state.now_s)) - _ms(entry.submitted_at_s),
        "amContainerLogs": "",
        "amHostHttpAddress": "",
        "allocatedMB": -1 if entry.ended else tasks * resources.memory_mb,
        "allocatedVCores": -1 if entry.ended else tasks * resources.vcores,
        "runningContainers": -1 if entry.ended else tasks,
        "memorySeconds": 0,
        "vcoreSeconds": 0,
        "resourceSecondsMap": {"entry": {"key": "yarn.io/gpu", "value": str(int(page_state.gpu_time_s(entry)))}},
        "queueUsagePercentage": share,
        "clusterUsagePercentage": share,
        "preemptedResourceMB": 0,
        "preemptedResourceVCores": 0,
        "numNonAMContainerPreempted": 0,
        "numAMContainerPreempted": 0,
        "logAggregationStatus": "DISABLED",
        "unmanagedApplication": False,
    }


def _newest(page_state: PageState) -> Iterable[AppEntry]:
    return page_state.manager.entries.newest_first()


def _tasks(entry: AppEntry) -> int:
    """How many tasks of an app run."""
    running = (job for job in entry.jobs if job.state in _AT_WORK and job.job_id in entry.shapes)
    return sum(job.gpus // max(1, entry.shapes[job.job_id].gpus_per_task) for job in running)


def _ms(time_s: float | None) -> int:
    return int(1000 * (time_s or 0.0))


def _whole(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,15}", text):
        raise InputError(f"{name} must be a whole number", value=text)
    return int(text)


Test = Callable[[Document], bool]


def _one_of(key: str) -> Callable[[str], Test]:
    def made(text: str) -> Test:
        wanted = {each.strip().lower() for each in text.split(",")}
        return lambda app: str(app[key]).lower() in wanted

    return made


def _bound(name: str, key: str, *, is_least: bool) -> Callable[[str], Test]:
    def made(text: str) -> Test:
        limit = _whole(name, text)
        return lambda app: int(str(app[key])) >= limit if is_least else int(str(app[key])) <= limit

    return made


_FILTERS: Mapping[str, Callable[[str], Test]] = {
    "state": _one_of("state"),
    "states": _one_of("state"),
    "finalStatus": _one_of("finalStatus"),
    "user": _one_of("user"),
    "queue": _one_of("queue"),
    "applicationTypes": _one_of("applicationType"),
    "startedTimeBegin": _bound("startedTimeBegin", "startedTime", is_least=True),
    "startedTimeEnd": _bound("startedTimeEnd", "startedTime", is_least=False),
    "finishedTimeBegin": _bound("finishedTimeBegin", "finishedTime", is_least=True),
    "finishedTimeEnd": _bound("finishedTimeEnd", "finishedTime", is_least=False),
}


# ---- machines -------------------------------------------------------------------------------------------------------


class _NodeUse(Value, frozen=True, kw_only=True):
    """A machine, and what leases use of it. A task is assumed for each leased GPU."""

    machine: Machine
    state: str
    gpus_used: int
    used_mb: int
    used_cores: int

    @property
    def tasks(self) -> int:
        """The tasks on it."""
        return self.gpus_used

    @classmethod
    def of(cls, page_state: PageState, machine: Machine) -> _NodeUse:
        """Return what leases use of a machine now."""
        arbiter, entries = page_state.manager.arbiter, page_state.manager.entries
        live = arbiter.table.live
        leases = [live[gpu] for gpu in arbiter.cluster.gpus_of(machine.machine_id) if gpu in live]
        specs = [entry.spec.resources for lease in leases if (entry := entries.find(lease.app_id)) is not None]
        return cls(
            machine=machine,
            state=_node_state(page_state, machine, bool(leases)),
            gpus_used=len(leases),
            used_mb=sum(each.memory_mb for each in specs),
            used_cores=sum(each.vcores for each in specs),
        )


def _node_state(page_state: PageState, machine: Machine, in_use: bool) -> str:
    if page_state.machine_state(machine) is MachineState.LOST:
        return "LOST"
    if machine.machine_id in page_state.manager.live_cluster.drained:
        return "DECOMMISSIONING" if in_use else "DECOMMISSIONED"
    return "RUNNING"


def nodes_document(page_state: PageState, query: Mapping[str, str]) -> Document:
    """The answer of `/ws/v1/cluster/nodes`; `states` picks some, by default those that are not lost or drained."""
    texts = query.get("states", "").upper()
    wanted = {each.strip() for each in texts.split(",")} if texts else {"RUNNING", "DECOMMISSIONING"}
    nodes = [_NodeUse.of(page_state, machine) for machine in page_state.manager.arbiter.cluster.machines]
    found = [_node_element(page_state, node) for node in nodes if node.state in wanted]
    return {"nodes": {"node": found} if found else None}


def node_document(page_state: PageState, node_id: str) -> Document | None:
    """The answer of `/ws/v1/cluster/nodes/{nodeid}`; None for an unknown machine."""
    machines = page_state.manager.arbiter.cluster.machines
    found = [machine for machine in machines if node_id in (machine.machine_id, f"{machine.machine_id}:0")]
    return {"node": _node_element(page_state, _NodeUse.of(page_state, found[0]))} if found else None


def _node_element(page_state: PageState, node: _NodeUse) -> Document:
    machine = node.machine
    usable = sum(
        page_state.gpu_state(gpu) in (GpuState.LEASED, GpuState.FREE)
        for gpu in page_state.manager.arbiter.cluster.gpus_of(machine.machine_id)
    )
    return {
        "rack": f"/{machine.rack_id}",
        "state": node.state,
        "id": f"{machine.machine_id}:0",
        "nodeHostName": machine.machine_id,
        "nodeHTTPAddress": "",
        "lastHealthUpdate": _ms(page_state.now_s),
        "version": themis.__version__,
        "healthReport": "",
        "numContainers": node.tasks,
        "usedMemoryMB": node.used_mb,
        "availMemoryMB": max(0, machine.memory_mb - node.used_mb),
        "usedVirtualCores": node.used_cores,
        "availableVirtualCores": max(0, machine.cpus - node.used_cores),
        "numRunningOpportContainers": 0,
        "usedMemoryOpportGB": 0,
        "usedVirtualCoresOpport": 0,
        "numQueuedContainers": 0,
        "nodeAttributesInfo": {"nodeAttributeInfo": [_attribute(machine)] if machine.device else []},
        "totalResource": _resource(machine.memory_mb, machine.cpus, machine.gpus),
        "usedResource": _resource(node.used_mb, node.used_cores, node.gpus_used),
        "availableResource": _resource(
            max(0, machine.memory_mb - node.used_mb), max(0, machine.cpus - node.used_cores), usable - node.gpus_used
        ),
    }


def _attribute(machine: Machine) -> Document:
    return {"prefix": "rm.yarn.io", "name": "device", "type": "STRING", "value": machine.device}


def _resource(memory_mb: int, cores: int, gpus: int) -> Document:
    amounts = (("memory-mb", "Mi", memory_mb), ("vcores", "", cores), ("yarn.io/gpu", "", gpus))
    return {
        "memory": memory_mb,
        "vCores": cores,
        "resourceInformations": {
            "resourceInformation": [
                {
                    "name": name,
                    "resourceType": "COUNTABLE",
                    "units": units,
                    "value": max(0, value),
                    "minimumAllocation": 0,
                    "maximumAllocation": 2**63 - 1,
                }
                for name, units, value in amounts
            ]
        },
    }
