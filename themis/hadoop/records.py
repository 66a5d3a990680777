"""Hadoop's records from and to our values. Needs a running JVM; every function here is the border to untyped Java."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import jpype

from themis.errors import InputError
from themis.hadoop.class_path import gpu_resource
from themis.hadoop.quoting import environment_value
from themis.hadoop.values import (
    AppReport,
    AppState,
    AppSubmission,
    AttemptReport,
    Container,
    ContainerAsk,
    ContainerEnd,
    ContainerState,
    ContainerStatus,
    FinalStatus,
    LocalResource,
    NodeReport,
    NodeState,
    ProcessLaunch,
    QueueReport,
)

_RECORDS = "org.apache.hadoop.yarn.api.records"


@cache
def java_class(name: str) -> Any:
    """A Java class by its full name."""
    return jpype.JClass(name)


def record(name: str) -> Any:
    """A class of YARN's records by its short name."""
    return java_class(f"{_RECORDS}.{name}")


def resource(memory_mb: int, vcores: int, gpus: int) -> Any:
    """A Resource of this size."""
    made = record("Resource").newInstance(jpype.JLong(memory_mb), jpype.JInt(vcores))
    if gpus:
        made.setResourceValue(gpu_resource(), jpype.JLong(gpus))
    return made


def gpus_of(held: Any) -> int:
    """Return the GPUs in a Resource, or 0 without one: YARN reports no resource for a lost node."""
    return 0 if held is None else int(held.getResourceValue(gpu_resource()))


def java_list(items: Iterable[Any]) -> Any:
    """An ArrayList."""
    made = java_class("java.util.ArrayList")()
    for item in items:
        made.add(item)
    return made


def java_set(items: Iterable[Any]) -> Any:
    """A HashSet."""
    made = java_class("java.util.HashSet")()
    for item in items:
        made.add(item)
    return made


def java_map(items: Mapping[str, Any]) -> Any:
    """A HashMap with strings as keys."""
    made = java_class("java.util.HashMap")()
    for name, value in items.items():
        made.put(jpype.JString(name), value)
    return made


def yarn_app_id(text: str) -> Any:
    """An ApplicationId. Raises InputError when the text is none."""
    return _parsed("ApplicationId", text, "a YARN application id looks like application_1700000000000_0001")


def _parsed(kind: str, text: str, remedy: str) -> Any:
    try:
        return record(kind).fromString(text)
    except jpype.JException as error:
        raise InputError(f"no {kind} of YARN's", value=text, remedy=remedy) from error


def launch_context(launch: ProcessLaunch, acls: Mapping[str, str] | None = None) -> Any:
    """A ContainerLaunchContext; `acls` maps ApplicationAccessType's names to lists of users and groups."""
    context = record("ContainerLaunchContext").newInstance(
        java_map({resource.name: _local_resource(resource) for resource in launch.resources}),
        java_map({name: jpype.JString(value) for name, value in launch_environment(launch).items()}),
        java_list(jpype.JString(command) for command in launch.commands),
        None,
        java_class("java.nio.ByteBuffer").wrap(jpype.JArray(jpype.JByte)(launch.tokens)) if launch.tokens else None,
        None,
    )
    if given := {name: users for name, users in (acls or {}).items() if users}:
        kinds = record("ApplicationAccessType")
        made = java_class("java.util.HashMap")()
        for name, users in given.items():
            made.put(kinds.valueOf(name), jpype.JString(users))
        context.setApplicationACLs(made)
    return context


def launch_environment(launch: ProcessLaunch) -> dict[str, str]:
    """The environment as the NodeManager's script needs it: values escaped, templates as they are."""
    twice = launch.environment.keys() & launch.environment_templates.keys()
    if twice:
        raise InputError("variables both as value and as template", value=sorted(twice))
    escaped = {name: environment_value(value) for name, value in launch.environment.items()}
    return {**escaped, **launch.environment_templates}


def _local_resource(brought: LocalResource) -> Any:
    path = java_class("org.apache.hadoop.fs.Path")(brought.uri)
    return record("LocalResource").newInstance(
        record("URL").fromPath(path),
        record("LocalResourceType").valueOf(brought.kind.value),
        record("LocalResourceVisibility").valueOf(brought.visibility.value),
        jpype.JLong(brought.size_bytes),
        jpype.JLong(brought.modified_ms),
    )


def fill_submission(context: Any, submission: AppSubmission) -> None:
    """Write a submission into an ApplicationSubmissionContext."""
    acls = {"VIEW_APP": submission.view_acl, "MODIFY_APP": submission.modify_acl}
    context.setApplicationName(submission.name)
    context.setQueue(submission.queue)
    context.setApplicationType(submission.app_type)
    context.setApplicationTags(java_set(jpype.JString(tag) for tag in submission.tags))
    context.setPriority(record("Priority").newInstance(jpype.JInt(submission.priority)))
    context.setMaxAppAttempts(jpype.JInt(submission.max_attempts))
    context.setKeepContainersAcrossApplicationAttempts(jpype.JBoolean(submission.keep_containers))
    context.setAttemptFailuresValidityInterval(jpype.JLong(submission.attempt_failures_validity_ms))
    context.setResource(resource(submission.memory_mb, submission.vcores, 0))
    if submission.node_label:
        # Of all its containers, the app master's too, as asks name no other label.
        context.setNodeLabelExpression(submission.node_label)
    context.setAMContainerSpec(launch_context(submission.launch, acls))


def container_request(ask: ContainerAsk) -> Any:
    """A request pinned to one host, identified by its allocation request id."""
    request = java_class("org.apache.hadoop.yarn.client.api.AMRMClient$ContainerRequest")
    return request(
        resource(ask.memory_mb, ask.vcores, ask.gpus),
        jpype.JArray(jpype.JString)([ask.host]),
        None,
        record("Priority").newInstance(jpype.JInt(ask.priority)),
        jpype.JLong(ask.allocation_request_id),
        jpype.JBoolean(False),
    )


def node_report(report: Any) -> NodeReport:
    """From a NodeReport of YARN's."""
    used, capacity = report.getUsed(), report.getCapability()
    return NodeReport(
        node_id=str(report.getNodeId()),
        host=str(report.getNodeId().getHost()),
        rack=_text(report.getRackName()),
        state=NodeState(str(report.getNodeState())),
        gpus=gpus_of(capacity),
        used_gpus=gpus_of(used),
        memory_mb=0 if capacity is None else int(capacity.getMemorySize()),
        used_memory_mb=0 if used is None else int(used.getMemorySize()),
        vcores=0 if capacity is None else int(capacity.getVirtualCores()),
        used_vcores=0 if used is None else int(used.getVirtualCores()),
        attributes=dict(_attribute(each) for each in report.getNodeAttributes() or ()),
        http_address=_text(report.getHttpAddress()),
        health=_text(report.getHealthReport()),
        labels=frozenset(str(label) for label in report.getNodeLabels() or () if str(label)),
    )


def _attribute(attribute: Any) -> tuple[str, str]:
    key = attribute.getAttributeKey()
    return f"{key.getAttributePrefix()}/{key.getAttributeName()}", _text(attribute.getAttributeValue())


def app_report(report: Any) -> AppReport:
    """From an ApplicationReport."""
    attempt = report.getCurrentApplicationAttemptId()
    return AppReport(
        yarn_app_id=str(report.getApplicationId()),
        name=_text(report.getName()),
        user=_text(report.getUser()),
        queue=_text(report.getQueue()),
        app_type=_text(report.getApplicationType()),
        tags=frozenset(str(tag) for tag in report.getApplicationTags()),
        state=AppState(str(report.getYarnApplicationState())),
        final_status=FinalStatus(str(report.getFinalApplicationStatus())),
        progress=float(report.getProgress()),
        tracking_url=_text(report.getTrackingUrl()),
        am_host=_text(report.getHost()),
        am_rpc_port=max(int(report.getRpcPort()), 0),
        attempt=max(int(attempt.getAttemptId()), 0) if attempt is not None else 0,
        diagnostics=_text(report.getDiagnostics()),
        started_at_s=int(report.getStartTime()) / 1000,
        finished_at_s=_time_s(report.getFinishTime()),
    )


def attempt_report(report: Any) -> AttemptReport:
    """From an ApplicationAttemptReport."""
    number = int(report.getApplicationAttemptId().getAttemptId())
    return AttemptReport(number=number, diagnostics=_text(report.getDiagnostics()))


def queue_report(queue: Any, children: Iterable[Any], node_label: str = "") -> QueueReport:
    """From the QueueInfo of a queue and those of its children. `max_gpus` is of the nodes with this label."""
    return QueueReport(
        name=str(queue.getQueueName()),
        is_running=str(queue.getQueueState()) == "RUNNING",
        max_capacity_share=float(queue.getMaximumCapacity()),
        children=tuple(str(child.getQueueName()) for child in children),
        max_gpus=_max_gpus(queue, node_label),
        path=_text(queue.getQueuePath()),
    )


def _max_gpus(queue: Any, node_label: str) -> int | None:
    """The GPUs that a queue's apps may use on the nodes with this label, or without one."""
    configurations = queue.getQueueConfigurations()
    configuration = None if configurations is None else configurations.get(node_label)
    most = None if configuration is None else configuration.getEffectiveMaxCapacity()
    return None if most is None else gpus_of(most)


def container(held: Any) -> Container:
    """From a Container of YARN's."""
    size = held.getResource()
    return Container(
        container_id=str(held.getId()),
        host=str(held.getNodeId().getHost()),
        node_id=str(held.getNodeId()),
        gpus=gpus_of(size),
        memory_mb=int(size.getMemorySize()),
        vcores=int(size.getVirtualCores()),
        allocation_request_id=int(held.getAllocationRequestId()),
        raw=held,
    )


def container_end(status: Any) -> ContainerEnd:
    """From the ContainerStatus of a completed container."""
    return ContainerEnd(
        container_id=str(status.getContainerId()),
        exit_code=int(status.getExitStatus()),
        diagnostics=_text(status.getDiagnostics()),
    )


def container_status(status: Any) -> ContainerStatus:
    """From a ContainerStatus as a NodeManager gives it."""
    # The state is RUNNING from the start; the sub-state says whether it waits for its files or runs.
    waits = str(status.getContainerSubState()) == "SCHEDULED"
    return ContainerStatus(
        container_id=str(status.getContainerId()),
        state=ContainerState.SCHEDULED if waits else ContainerState(str(status.getState())),
        exit_code=int(status.getExitStatus()),
        diagnostics=_text(status.getDiagnostics()),
    )


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return "" if text == "N/A" else text


def _time_s(time_ms: Any) -> float | None:
    return int(time_ms) / 1000 if int(time_ms) > 0 else None
