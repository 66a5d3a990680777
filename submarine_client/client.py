"""The client for programs and notebooks: submit an app, wait for it, and read its jobs.

Example:
    A search, from its group file to the checkpoint of its best job::

        from submarine_client import Client

        app = Client().submit("digits.yaml")
        app.wait()
        app.jobs.to_pandas()
        app.best.checkpoint
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from submarine_client.address import rm_address
from submarine_client.app_list import NEWEST, Selection, select
from submarine_client.connection import Connection
from submarine_client.events import event_object
from submarine_client.groups import load_app
from submarine_client.resuming import resumed, spec_of
from submarine_client.show import app_text
from submarine_client.usage import cluster_object
from themis.apps import AppSpec, HyperParameter
from themis.errors import InputError, ThemisError
from themis.values import Value
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb

_POLL_S = 1.0


class AppFailedError(ThemisError):
    """The app failed or was killed."""


class Waiting(Value, frozen=True, kw_only=True):
    """Why an app has no more GPUs, and its place among the `of` apps that could use more; None if it has none."""

    reason: str
    rank: int | None
    of: int


class Interval(Value, frozen=True, kw_only=True):
    """Seconds from the last update: in 80 % of cases from `low` to `high`. Infinite if it is not in sight."""

    median: float
    low: float
    high: float


class Estimate(Value, frozen=True, kw_only=True):
    """When an app holds its first GPU (0: it holds one), and when it ends."""

    first_gpu_s: Interval
    end_s: Interval


class Job(Value, frozen=True, kw_only=True):
    """One job of an app as its app master reported it last.

    `loss` is the value of the metric if the group file declares one. It and `accuracy` (a share of 1) are None if the
    job logged none. `checkpoint` is known of the best job only. `tracked_run` is where its run of MLflow or Weights &
    Biases is, None if it reported none.
    """

    job_id: str
    state: str
    iteration: int
    target_iteration: int
    loss: float | None
    accuracy: float | None
    gpus: int
    restarts: int
    hyper_parameters: Mapping[str, HyperParameter]
    checkpoint: str | None
    tracked_run: str | None


class Jobs(Sequence[Job]):
    """The jobs of an app, in the order of their ids. `metric` is the name of what `loss` is: the declared metric."""

    def __init__(self, jobs: Sequence[Job], metric: str = "loss") -> None:
        self._jobs = tuple(jobs)
        self.metric = metric

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, at: int) -> Job: ...
    @overload
    def __getitem__(self, at: slice) -> Jobs: ...
    def __getitem__(self, at: int | slice) -> Job | Jobs:
        return Jobs(self._jobs[at], self.metric) if isinstance(at, slice) else self._jobs[at]

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row per job, indexed by job id, and a column per hyper-parameter.

        The column of a declared metric has its name, not `loss`.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            remedy = "pip install 'themis-scheduler[notebook]'"
            raise InputError("a table of jobs needs pandas, which is not installed", remedy=remedy) from None
        left_out = {"job_id", "hyper_parameters", self.metric} - {"loss"}
        fields = [name for name in Job.__struct_fields__ if name not in left_out]
        names = {"loss": self.metric}
        rows = [
            {names.get(name, name): getattr(job, name) for name in fields} | dict(job.hyper_parameters) for job in self
        ]
        return pandas.DataFrame(rows, index=pandas.Index([job.job_id for job in self], name="job_id"))

    def __repr__(self) -> str:
        return f"Jobs({list(self._jobs)!r})"


class App:
    """A submitted app. Each property shows the app as it was at the last `refresh`, `wait` or submission.

    Args:
        connection: The connection to the ResourceManager.
        seen: The app's status.
    """

    def __init__(self, connection: Connection, seen: pb.AppStatus) -> None:
        self._connection = connection
        self._seen = seen

    @property
    def app_id(self) -> str:
        """The id, such as `app-0001`."""
        return str(self._seen.app_id)

    @property
    def name(self) -> str:
        """The name in the group file."""
        return str(self._seen.name)

    @property
    def state(self) -> str:
        """The state of its lifecycle; `WAITING` if it takes part in rounds, but has no GPU."""
        return status.shown_state(self._seen)

    @property
    def has_ended(self) -> bool:
        """Whether it finished, failed or was killed."""
        return status.has_ended(self._seen)

    @property
    def progress(self) -> float:
        """The share of its work that is done, from 0 to 1. NaN if it ended and that is unknown."""
        return float(self._seen.progress)

    @property
    def gpus(self) -> int:
        """How many GPUs it holds."""
        return int(self._seen.gpus)

    @property
    def gpu_time_s(self) -> float:
        """The GPU time that it has used, in seconds."""
        return float(self._seen.gpu_time_s)

    @property
    def diagnostics(self) -> str:
        """Why it failed, was killed, or lost its last app master; empty if there is nothing to say."""
        return str(self._seen.diagnostics)

    @property
    def rho(self) -> float | None:
        """Its finish-time fairness: expected while it runs, final after the end. None if it is not known yet."""
        value = status.rho(self._seen)
        return value if math.isfinite(value) else None

    @property
    def waiting(self) -> Waiting | None:
        """Why it has no more GPUs, and its place. None if it has ended, is paused or can use no more."""
        if not self._seen.HasField("waiting"):
            return None
        waiting = self._seen.waiting
        return Waiting(reason=waiting.reason, rank=waiting.rank or None, of=waiting.of)

    @property
    def estimate(self) -> Estimate | None:
        """When it is expected to start and to end. None before the first estimate, and after the end."""
        if not self._seen.HasField("estimate"):
            return None
        estimate = self._seen.estimate
        return Estimate(first_gpu_s=_interval(estimate.first_gpu_s), end_s=_interval(estimate.end_s))

    @property
    def final_rho(self) -> dict[str, float]:
        """Finish-time fairness by definition; empty before the end."""
        return dict(self._seen.final_rho)

    @property
    def jobs(self) -> Jobs:
        """Its jobs; before its app master reports, none."""
        return Jobs([self._job(job) for job in self._seen.jobs], status.metric(self._seen).title)

    @property
    def best(self) -> Job | None:
        """The job with the best score so far, or None if no job has a score."""
        job = status.best_job(self._seen)
        return None if job is None else self._job(job)

    def refresh(self) -> Self:
        """Ask the ResourceManager for the present state. Returns the app itself."""
        self._seen = self._connection.show(self.app_id)
        return self

    async def refresh_async(self) -> Self:
        """Refresh as `refresh` does, without blocking the event loop."""
        return await asyncio.to_thread(self.refresh)

    def wait(self, timeout_s: float | None = None, *, poll_s: float = _POLL_S, check: bool = True) -> Self:
        """Wait until the app has ended. Returns the app itself.

        Args:
            timeout_s: How long to wait, in seconds; None: without a limit.
            poll_s: Seconds between two looks.
            check: Whether an app that did not finish raises.

        Raises:
            TimeoutError: It has not ended after `timeout_s`.
            AppFailedError: It failed or was killed, and `check` is true.
            UnreachableError: The ResourceManager does not answer.
        """
        deadline_s = _deadline_s(timeout_s)
        while not self.refresh().has_ended:
            time.sleep(_pause_s(self, deadline_s, poll_s))
        return self._checked(check)

    async def wait_async(self, timeout_s: float | None = None, *, poll_s: float = _POLL_S, check: bool = True) -> Self:
        """Wait as `wait` does, without blocking the event loop."""
        deadline_s = _deadline_s(timeout_s)
        # The app ends in another process, so no asyncio.Event can signal it.
        while not (await self.refresh_async()).has_ended:  # noqa: ASYNC110
            await asyncio.sleep(_pause_s(self, deadline_s, poll_s))
        return self._checked(check)

    def kill(self, reason: str = "") -> Self:
        """End the app. Returns the app itself."""
        self._connection.kill(self.app_id, reason)
        return self.refresh()

    def pause(self, reason: str = "") -> Self:
        """Let it save checkpoints and give its GPUs back. Returns the app itself, which is PAUSED a moment later."""
        self._connection.pause(self.app_id, reason)
        return self.refresh()

    def resume(self) -> App:
        """Bring it back if it is paused; else submit it again, with its checkpoints. Returns the app that runs then.

        Raises:
            InputError: It runs, has finished, or never had a checkpoint.
        """
        if status.is_paused(self.refresh()._seen):
            self._connection.resume(self.app_id)
            return self.refresh()
        return _submitted(self._connection, resumed(self._connection.show(self.app_id, environment=True)))

    def resubmit(self) -> App:
        """Submit it again, as a new app without checkpoints. Returns the new app.

        Raises:
            InputError: It is another user's.
        """
        return _submitted(self._connection, spec_of(self._connection.show(self.app_id, environment=True)))

    def logs(self, job: str = "", *, follow: bool = False, tail: int = 0) -> Iterator[str]:
        """Yield the output of the tasks of one job, or of all jobs, in pieces.

        Args:
            job: The job; empty for all jobs.
            follow: Wait for more output until the app ends.
            tail: How many last lines of each log to begin with; 0: all.
        """
        for chunk in self._connection.logs(self.app_id, job, follow=follow, tail=tail):
            yield str(chunk.text)

    def events(self, *, follow: bool = False) -> Iterator[dict[str, Any]]:
        """Yield its events: dictionaries with `time_s`, `kind` and `detail`."""
        return map(event_object, self._connection.watch(self.app_id, follow=follow))

    def __repr__(self) -> str:
        return f"<App {self.app_id} {self.name!r} {self.state}>"

    def __str__(self) -> str:
        return app_text(self._seen)

    def _repr_html_(self) -> str:
        """Return its HTML for notebooks."""
        return f"<pre>{escape(app_text(self._seen))}</pre>"

    def _job(self, job: pb.JobStatus) -> Job:
        is_best = job.job_id == self._seen.best
        return Job(
            job_id=job.job_id,
            state=job.state,
            iteration=job.iteration,
            target_iteration=job.target_iteration,
            loss=job.loss if job.has_loss else None,
            accuracy=job.accuracy if job.has_accuracy else None,
            gpus=job.gpus,
            restarts=job.restarts,
            hyper_parameters=status.hyper_parameters(self._seen, job.job_id),
            checkpoint=(self._seen.best_checkpoint or None) if is_best else None,
            tracked_run=job.tracked_run or None,
        )

    def _checked(self, check: bool) -> Self:
        if check and not status.succeeded(self._seen):
            raise AppFailedError(f"app {self.app_id} is {self.state}", value=self.diagnostics or None)
        return self


class Client:
    """Submits and follows apps. Safe to use from several threads; may be a context manager.

    Every method raises UnreachableError if no ResourceManager answers, and InputError for what it refuses.

    Args:
        address: HOST:PORT of the ResourceManager; by default $THEMIS_RM, else the address that `themis rm start` uses.
        ca: The file of the authorities to trust with TLS; by default $THEMIS_CA, else see docs/how-to/users.md.
    """

    def __init__(self, address: str | None = None, *, ca: str | None = None) -> None:
        self._connection = Connection(rm_address(address, os.environ), ca=ca)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def submit(self, group: str | Path | AppSpec) -> App:
        """Submit a group file, an example by its name, or a specification.

        Raises:
            InputError: The file or the specification is invalid.
        """
        return _submitted(self._connection, group if isinstance(group, AppSpec) else load_app(group))

    async def submit_async(self, group: str | Path | AppSpec) -> App:
        """Submit as `submit` does, without blocking the event loop."""
        return await asyncio.to_thread(self.submit, group)

    def app(self, reference: str) -> App:
        """Return an app by its id, or by its name if only one running app has it."""
        return App(self._connection, self._connection.show(reference))

    def apps(
        self, *, states: Sequence[str] = (), users: Sequence[str] = (), sort: str = NEWEST, limit: int = 200
    ) -> list[App]:
        """Return the apps that `submarine app list` shows with the flags of these names; a limit of 0: all."""
        selection = Selection(states=tuple(states), users=tuple(users), sort=sort, limit=limit)
        return [App(self._connection, app) for app in select(self._connection, selection).apps]

    def cluster(self) -> dict[str, Any]:
        """Return the machines, and how many of their devices are leased, as `submarine cluster --json` prints them."""
        return cluster_object(self._connection.cluster())


def _submitted(connection: Connection, spec: AppSpec) -> App:
    return App(connection, connection.show(connection.submit(spec)))


def _interval(seconds: pb.Seconds) -> Interval:
    return Interval(median=seconds.median, low=seconds.low, high=seconds.high)


def _deadline_s(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _pause_s(app: App, deadline_s: float | None, poll_s: float) -> float:
    """Seconds until the next look. Raises TimeoutError after the deadline."""
    if deadline_s is None:
        return poll_s
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError(f"app {app.app_id} has not ended: {app.state}")
    return min(poll_s, left_s)
