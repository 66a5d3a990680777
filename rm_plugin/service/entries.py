"""An app as the ResourceManager runs it: its specification, its state, its session, what it last told."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rm_plugin.arbiter.round_values import AppOwner
from rm_plugin.service.session import Session
from rm_plugin.service.store import StoredApp
from themis.apps import AppSpec, JobShape
from themis.errors import InputError, UnknownNameError
from themis.lifecycle import APP_LIFECYCLE, JOB_ENDS, AppState, JobState
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message, app_to_message


@dataclass(slots=True, kw_only=True)
class AppEntry:
    """One app. Mutable, owned by the ResourceManager's loop; times are seconds since the epoch.

    `excused_attempts` ended through no fault of the app: the ResourceManager stopped, or was away.
    `last_message` is the attempt and the id of the newest message taken in: one that comes again is only acknowledged.
    `shapes` holds the shape of each job by its id; `refused_messages` counts what its app masters sent in vain.
    """

    app_id: str
    spec: AppSpec
    submitted_at_s: float
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    state: AppState = AppState.SUBMITTED
    attempt: int = 0
    lost_attempt: int = 0
    registered_attempt: int = 0
    excused_attempts: int = 0
    pid: int = 0
    page_url: str = ""
    engine_id: str = ""
    started_at_s: float | None = None
    finished_at_s: float | None = None
    diagnostics: str = ""
    kill_reason: str = ""
    forced_reason: str = ""
    logs_whole: bool = False
    session: Session | None = None
    last_message: tuple[int, int] = (0, 0)
    last_seen_s: float = 0.0
    gpu_time_s: float = 0.0
    heartbeat: pb.Heartbeat = field(default_factory=pb.Heartbeat)
    finish: pb.Finish = field(default_factory=pb.Finish)
    refused_messages: int = 0
    shapes: Mapping[str, JobShape] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.shapes = {job.job_id: job.shape for job in self.spec.jobs}

    @property
    def ended(self) -> bool:
        """True when nothing of the app will run any more."""
        return APP_LIFECYCLE.is_final(self.state)

    @property
    def rho(self) -> float:
        """Finish-time fairness: as last told, 0 before; of an app that has ended the final one, NaN where it has none.

        What a heartbeat tells is a forecast, which is void once the app is over.
        """
        return self.finish.rho.get("themis", math.nan) if self.ended else self.heartbeat.rho

    @property
    def progress(self) -> float:
        """The share of the app's work that is done, 0 to 1."""
        return 1.0 if self.finish.state == AppState.FINISHED.value else self.heartbeat.progress

    @property
    def jobs(self) -> Sequence[pb.JobStatus]:
        """The jobs as its app master last told of them; none before it did. Of an app that has ended none goes on."""
        told = self.finish.jobs or self.heartbeat.jobs
        return [_ended(job) for job in told] if self.ended else told

    @property
    def best_job(self) -> str:
        """The leading job's id, empty while nobody knows."""
        return self.finish.best if self.finish.state else self.heartbeat.best

    def turn(self, state: AppState) -> None:
        """Change the state; one that may not follow raises InvariantError."""
        self.state = APP_LIFECYCLE.check(self.state, state, self.app_id)

    @property
    def owner(self) -> AppOwner:
        """Whose app it is."""
        return AppOwner(user=self.spec.user, queue=self.spec.queue)

    def stored(self) -> StoredApp:
        """The entry as the store keeps it."""
        return StoredApp(
            app_id=self.app_id,
            state=self.state,
            attempt=self.attempt,
            token=self.token,
            spec=app_to_message(self.spec).SerializeToString(deterministic=True),
            pid=self.pid,
            submitted_at_s=self.submitted_at_s,
            started_at_s=self.started_at_s,
            finished_at_s=self.finished_at_s,
            diagnostics=self.diagnostics,
            final={
                "gpu_time_s": self.gpu_time_s,
                "excused_attempts": self.excused_attempts,
                "finish": _hex(self.finish),
                "kill_reason": self.kill_reason,
                **(self._last_told() if self.ended or self.kill_reason else {}),
            },
        )

    def _last_told(self) -> dict[str, object]:
        """What an app that is over or about to be is shown with beside its finish; others will be told of anew."""
        heartbeat = pb.Heartbeat()
        heartbeat.CopyFrom(self.heartbeat)
        if self.finish.jobs:
            heartbeat.ClearField("jobs")
        return {"heartbeat": _hex(heartbeat), "page_url": self.page_url, "engine_id": self.engine_id}

    @classmethod
    def restored(cls, stored: StoredApp) -> AppEntry:
        """The inverse of `stored`; the session is gone, and of an app that goes on what its master last told."""
        gpu_time_s, excused = stored.final.get("gpu_time_s", 0.0), stored.final.get("excused_attempts", 0)
        return cls(
            app_id=stored.app_id,
            spec=app_from_message(pb.AppSpec.FromString(stored.spec)),
            submitted_at_s=stored.submitted_at_s,
            token=stored.token,
            state=stored.state,
            attempt=stored.attempt,
            pid=stored.pid,
            started_at_s=stored.started_at_s,
            finished_at_s=stored.finished_at_s,
            diagnostics=stored.diagnostics,
            excused_attempts=excused if isinstance(excused, int) else 0,
            gpu_time_s=float(gpu_time_s) if isinstance(gpu_time_s, int | float) else 0.0,
            kill_reason=str(stored.final.get("kill_reason", "")),
            page_url=str(stored.final.get("page_url", "")),
            engine_id=str(stored.final.get("engine_id", "")),
            heartbeat=pb.Heartbeat.FromString(bytes.fromhex(str(stored.final.get("heartbeat", "")))),
            finish=pb.Finish.FromString(bytes.fromhex(str(stored.final.get("finish", "")))),
        )


_ENDS_OF_JOBS = frozenset(state.value for state in (JobState.FINISHED, *JOB_ENDS))


def _ended(job: pb.JobStatus) -> pb.JobStatus:
    """A job of an app that has ended. Where the app was ended by force, its master could not tell of the job's end."""
    if job.state in _ENDS_OF_JOBS:
        return job
    ended = pb.JobStatus()
    ended.CopyFrom(job)
    ended.state, ended.gpus = JobState.KILLED.value, 0
    return ended


def _hex(message: pb.Heartbeat | pb.Finish) -> str:
    return str(message.SerializeToString(deterministic=True).hex())


class AppEntries:
    """All apps by id, in order of submission; also found by a name that only one app bears.

    `lost` holds the ids of apps of which the store knows, but cannot read more: their ids are not given out again.
    """

    def __init__(self, entries: Sequence[AppEntry] = (), lost: Iterable[str] = ()) -> None:
        self._entries = {entry.app_id: entry for entry in entries}
        self.lost = set(lost)
        self._active = dict(self._entries)

    def __iter__(self) -> Iterator[AppEntry]:
        return iter(self._entries.values())

    def add(self, entry: AppEntry) -> None:
        """Add a new app."""
        self._entries[entry.app_id] = self._active[entry.app_id] = entry

    def next_id(self) -> str:
        """The id of the next app to come."""
        number = len(self._entries) + len(self.lost) + 1
        while (app_id := f"app-{number:04d}") in self._entries or app_id in self.lost:
            number += 1
        return app_id

    def lose(self, app_id: str) -> None:
        """Of an app that the store names nothing more can be read, or it has ended: nothing of it may run."""
        self.lost.add(app_id)

    def active(self) -> list[AppEntry]:
        """Apps that have not ended, in order of submission. Those that ended before are looked at once."""
        self._active = {app_id: entry for app_id, entry in self._active.items() if not entry.ended}
        return list(self._active.values())

    def get(self, app_id: str) -> AppEntry:
        """The app of an id, or the newest one of a name; an unknown one raises UnknownNameError."""
        if app_id in self._entries:
            return self._entries[app_id]
        named = [entry for entry in self._entries.values() if entry.spec.name == app_id]
        if not named:
            raise UnknownNameError("app", app_id, {*self._entries, *(entry.spec.name for entry in self)})
        running = [entry for entry in named if not entry.ended]
        if len(running) > 1:
            ids = ", ".join(entry.app_id for entry in running)
            raise InputError("several running apps bear this name", value=app_id, remedy=f"name one by its id: {ids}")
        return (running or named)[-1]
