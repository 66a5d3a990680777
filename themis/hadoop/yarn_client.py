"""Applications, nodes and queues of a YARN cluster, as a user of it sees them (Hadoop's `YarnClient`).

Every call blocks, for at most `connect_wait_s` while the ResourceManager is unavailable, then raises UnreachableError
and may be made again. After one from `submit` the application may exist all the same: look for it by a tag of its own,
with `reports`, before submitting again. Any thread may call.

    with YarnClient() as yarn:
        yarn_app_id = yarn.submit(AppSubmission(name="app-1", memory_mb=256, launch=ProcessLaunch(
            commands=(command_line(module_command("am.main")),),
            environment={**handed_on(os.environ), "PYTHONPATH": "/opt/themis"},
        )))
        report = yarn.report(yarn_app_id)

The app master's environment must lead it to Java, jars and configuration: see the table in `themis.hadoop.jvm`.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import jpype

from themis.errors import InputError
from themis.hadoop.client_configuration import DEFAULT_CONNECT_WAIT_S, yarn_configuration
from themis.hadoop.java_errors import typed_errors
from themis.hadoop.records import (
    app_report,
    attempt_report,
    fill_submission,
    java_class,
    java_set,
    node_report,
    queue_report,
    record,
    yarn_app_id,
)
from themis.hadoop.security import act_as, login
from themis.hadoop.values import (
    AppReport,
    AppState,
    AppSubmission,
    AttemptReport,
    NodeReport,
    NodeState,
    QueueReport,
)


class YarnClient:
    """A connection to YARN's ResourceManager. Starts the JVM if need be, and logs in from the keytab if one is set.

    Args:
        connect_wait_s: How long a call waits for a ResourceManager that is unavailable.
    """

    def __init__(self, *, connect_wait_s: float = DEFAULT_CONNECT_WAIT_S) -> None:
        self._configuration = yarn_configuration(connect_wait_s)
        login(self._configuration)
        self._client = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; applications live on."""
        with typed_errors("closing the client"):
            self._client.stop()

    def nodes(self, states: Iterable[NodeState] = (NodeState.RUNNING,)) -> tuple[NodeReport, ...]:
        """Nodes in these states, by node id. Lost and decommissioned ones count too when their state is asked for."""
        kinds = record("NodeState")
        wanted = jpype.JArray(kinds)([kinds.valueOf(state.value) for state in states])
        with typed_errors("listing nodes"):
            reports = [node_report(report) for report in self._client.getNodeReports(wanted)]
        return tuple(sorted(reports, key=lambda report: report.node_id))

    def submit(self, submission: AppSubmission) -> str:
        """Submit an application; returns its id once YARN has accepted it.

        Raises:
            ResourceAskError: The app master's container is larger than YARN allows.
            YarnError: YARN refuses it: an unknown queue, a tag too many, no right.
            UnreachableError: YARN is unavailable.
        """
        _check(submission)
        if not submission.user:
            return self._submit(self._client, submission)
        with typed_errors("acting for another user", submission.user):
            return act_as(submission.user, lambda: self._submit_with_new_client(submission))

    def report(self, app_id: str) -> AppReport:
        """One application. Raises UnknownYarnAppError when YARN does not know it (any more)."""
        with typed_errors("asking for an application", app_id):
            return app_report(self._client.getApplicationReport(yarn_app_id(app_id)))

    def attempts(self, app_id: str) -> tuple[AttemptReport, ...]:
        """The attempts of an application that YARN remembers, oldest first."""
        with typed_errors("listing attempts", app_id):
            found = [attempt_report(each) for each in self._client.getApplicationAttempts(yarn_app_id(app_id))]
        return tuple(sorted(found, key=lambda report: report.number))

    def reports(
        self, *, tags: Iterable[str] = (), app_types: Iterable[str] = (), states: Iterable[AppState] = ()
    ) -> tuple[AppReport, ...]:
        """Applications with at least one of the tags, of these types and states, oldest first; no filter: all."""
        requests = java_class("org.apache.hadoop.yarn.api.protocolrecords.GetApplicationsRequest")
        request = requests.newInstance()
        if wanted := [jpype.JString(tag) for tag in tags]:
            request.setApplicationTags(java_set(wanted))
        if wanted := [jpype.JString(kind) for kind in app_types]:
            request.setApplicationTypes(java_set(wanted))
        kinds = record("YarnApplicationState")
        if wanted := [kinds.valueOf(state.value) for state in states]:
            request.setApplicationStates(java_class("java.util.EnumSet").copyOf(java_set(wanted)))
        with typed_errors("listing applications"):
            found = [app_report(report) for report in self._client.getApplications(request)]
        return tuple(sorted(found, key=lambda report: (report.started_at_s, report.yarn_app_id)))

    def kill(self, app_id: str, diagnostics: str = "") -> None:
        """Kill an application and all its containers; returns when it is over. One that is over already is no error."""
        with typed_errors("killing an application", app_id):
            self._client.killApplication(yarn_app_id(app_id), diagnostics or "killed by its owner")

    def queue(self, name: str) -> QueueReport:
        """A queue by its name. Raises InputError when YARN has none of this name."""
        with typed_errors("asking for a queue", name):
            info = self._client.getQueueInfo(name)
            if info is None:
                raise InputError("YARN has no such queue", value=name, remedy="see capacity-scheduler.xml")
            return queue_report(info, self._client.getChildQueueInfos(name))

    def queues(self, node_label: str = "") -> tuple[QueueReport, ...]:
        """All queues that accept apps; `max_gpus` is of the nodes with this label."""
        with typed_errors("listing queues"):
            leaves = [info for info in self._client.getAllQueues() if not info.getChildQueues()]
            return tuple(queue_report(info, (), node_label) for info in leaves)

    def _started(self) -> Any:
        with typed_errors("starting YARN's client"):
            client = java_class("org.apache.hadoop.yarn.client.api.YarnClient").createYarnClient()
            client.init(self._configuration)
            client.start()
        return client

    def _submit(self, client: Any, submission: AppSubmission) -> str:
        with typed_errors("submitting an application", submission.name):
            context = client.createApplication().getApplicationSubmissionContext()
            fill_submission(context, submission)
            return str(client.submitApplication(context))

    def _submit_with_new_client(self, submission: AppSubmission) -> str:
        # A client belongs to the user that was current when it was started.
        client = self._started()
        try:
            return self._submit(client, submission)
        finally:
            client.stop()


def _check(submission: AppSubmission) -> None:
    if len(submission.app_type) > 20:
        raise InputError("an application's type has at most 20 characters", value=submission.app_type)
    if not submission.launch.commands:
        raise InputError("an application needs a command", value=submission.name)
