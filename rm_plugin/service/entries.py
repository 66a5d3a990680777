"""An app in the ResourceManager: its specification, state, session and newest heartbeat."""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rm_plugin.arbiter.round_values import Wait
from rm_plugin.service.attempt_losses import NO_LOSSES, AttemptLosses
from rm_plugin.service.budget import Budget
from rm_plugin.service.grant_limit import NO_GRANT_LIMIT, GrantLimit
from rm_plugin.service.session import Session
from rm_plugin.service.store import StoredApp, app_number
from themis.apps import AppSpec, JobShape
from themis.attempt_proof import as_hashed
from themis.errors import InputError, UnknownNameError
from themis.lifecycle import APP_LIFECYCLE, JOB_ENDS, AppState, JobState
from themis.queues import AppOwner
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message, app_to_message

MAX_MESSAGES, MESSAGES_PER_S = 5_000.0, 200.0
"""Messages of an app's sessions: at most at once, and each second after that. An app master sends a few each second,
and after an absence of the ResourceManager all that happened meanwhile."""
MAX_REGISTRATIONS, REGISTRATIONS_PER_S = 60.0, 1.0
"""Sessions that an app may open: at once, and each second after that. Each is an event in the store, causes a round and
may send the app's code."""
MAX_BYTES, BYTES_PER_S = 64.0 * 2**20, 2.0 * 2**20

_DECLARED_ANEW = 0.05
"""An app has declared itself anew if the time of all its phases changed by more than this share."""

_IDS_SHOWN = 10
"""How many ids or names of apps an error lists at most. Of several running apps of one name, the newest ones."""

_NEAR_APPS = 300
"""Among how many of the newest apps the error for an unknown name looks for a similar one: all would take seconds."""


@dataclass(slots=True, kw_only=True)
class AppEntry:
    """One app. Mutable, owned by the ResourceManager's loop; times are seconds since the epoch.

    `launch_wait` is why the engine has not started the app master yet, `wait` why a job waits, by the newest round
    (`Decision.waits`). `grant_limit` is what the engine did not grant it, which a restart forgets.
    `resting_view` is the view that its last app master left to the agent host; empty for an app that does not rest.
    `idle_since_s` is when its app master was last seen with GPUs, or asked to rest.
    `last_message` is the attempt and id of the newest message processed; a message that comes again
    is only acknowledged. `pause_reason` is why an app that still runs is about to be paused. `paused_at_s` is when it
    was, and `paused_s` the length of its earlier pauses. `waits_since_s` is since when it waits for admission, because
    it is over a limit of active apps; None if it does not. `unadmitted_s` is how long it waited so before. `shapes`
    maps job ids to shapes. `on_state` hears of each new state, with the one before (`update`).
    `refused_messages` counts the app masters' invalid messages, and `cut_claims` what was cut from reports and bids
    (`claims`). `claimed_gpu_s` is the work of the whole search that it declared by reports that are no guesses,
    else the largest guess (`claim_guessed`).
    `declared_time_s` is the time of all its phases on the whole cluster, when it last declared itself anew.
    """

    app_id: str
    spec: AppSpec
    submitted_at_s: float
    token_sha256: str = field(default="", repr=False)
    state: AppState = AppState.SUBMITTED
    attempt: int = 0
    lost_attempt: int = 0
    registered_attempt: int = 0
    registered_pid: int = 0
    attempt_losses: AttemptLosses = NO_LOSSES
    pid: int = 0
    page_url: str = ""
    engine_id: str = ""
    started_at_s: float | None = None
    finished_at_s: float | None = None
    diagnostics: str = ""
    launch_wait: str = ""
    kill_reason: str = ""
    pause_reason: str = ""
    paused_at_s: float | None = None
    paused_s: float = 0.0
    waits_since_s: float | None = None
    unadmitted_s: float = 0.0
    forced_reason: str = ""
    logs_whole: bool = False
    archive: str = ""
    session: Session | None = None
    last_message: tuple[int, int] = (0, 0)
    last_seen_s: float = 0.0
    idle_since_s: float = 0.0
    resting_view: bytes = field(default=b"", repr=False)
    gpu_time_s: float = 0.0
    wait: Wait | None = None
    grant_limit: GrantLimit = NO_GRANT_LIMIT
    heartbeat: pb.Heartbeat = field(default_factory=pb.Heartbeat)
    _curves: dict[str, pb.LossCurve] = field(default_factory=dict, repr=False)
    finish: pb.Finish = field(default_factory=pb.Finish)
    refused_messages: int = 0
    on_state: Callable[[AppEntry, AppState], None] | None = field(default=None, repr=False, compare=False)
    cut_claims: int = 0
    claimed_gpu_s: float | None = None
    claim_guessed: bool = False
    declared_time_s: float = 0.0
    messages: Budget = field(default_factory=lambda: Budget(MAX_MESSAGES, MESSAGES_PER_S), repr=False)
    message_bytes: Budget = field(default_factory=lambda: Budget(MAX_BYTES, BYTES_PER_S), repr=False)
    registrations: Budget = field(default_factory=lambda: Budget(MAX_REGISTRATIONS, REGISTRATIONS_PER_S), repr=False)
    shapes: Mapping[str, JobShape] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.shapes = {job.job_id: job.shape for job in self.spec.jobs}

    @property
    def number(self) -> int:
        """The number at the end of the app's id: apps are numbered in order of submission."""
        return app_number(self.app_id)

    @property
    def ended(self) -> bool:
        """Whether the app has ended: nothing of it will run any more."""
        return APP_LIFECYCLE.is_final(self.state)

    @property
    def is_active(self) -> bool:
        """Whether the app runs or is to be started: it has neither ended nor is it paused."""
        return not self.ended and self.state is not AppState.PAUSED

    @property
    def is_admitted(self) -> bool:
        """Whether it takes part in rounds, and counts for limits of active apps."""
        return self.is_active and self.waits_since_s is None

    @property
    def has_app_master(self) -> bool:
        """Whether an attempt of it may live, or has to be followed by another one as it was lost."""
        return self.attempt > 0 and not self.resting_view and self.waits_since_s is None

    @property
    def leave_reason(self) -> str:
        """Why the app is about to be killed or paused; empty if neither."""
        return self.kill_reason or self.pause_reason

    @property
    def arrived_at_s(self) -> float:
        """From when on fairness counts: the submission, later by the time of pauses and of waits for admission."""
        return self.submitted_at_s + self.paused_s + self.unadmitted_s

    @property
    def progress(self) -> float:
        """The finished share of the app's work, 0 to 1. NaN if it is unknown: a job ended short of its target."""
        if self.finish.state != AppState.FINISHED.value:
            return self.heartbeat.progress
        return 1.0 if self.finish.rho else math.nan

    @property
    def jobs(self) -> Sequence[pb.JobStatus]:
        """The jobs in the app master's newest message, empty before the first one. An ended app has no running job."""
        jobs = self.finish.jobs or self.heartbeat.jobs
        return [_ended(job) for job in jobs] if self.ended else jobs

    @property
    def declaration(self) -> pb.Declaration:
        """What the app declared last to the fluid fair cluster; without phases before the first heartbeat."""
        return self.finish.declaration if self.finish.HasField("declaration") else self.heartbeat.declaration

    @property
    def best_job(self) -> str:
        """The id of the best job, empty while it is unknown."""
        return self.finish.best if self.finish.state else self.heartbeat.best

    @property
    def loss_curves(self) -> Sequence[pb.LossCurve]:
        """The losses of the app's jobs, as far as it has reported any."""
        return self.finish.loss_curves or list(self._curves.values())

    def take_heartbeat(self, heartbeat: pb.Heartbeat) -> None:
        """Replace the newest heartbeat, and the loss curves that it contains."""
        self.heartbeat = heartbeat
        self._curves |= {curve.job_id: curve for curve in heartbeat.loss_curves}

    def turn(self, state: AppState) -> None:
        """Change the state. Raises InvariantError if the new state may not follow the old one."""
        self.update(state=APP_LIFECYCLE.check(self.state, state, self.app_id))

    def update(self, **fields: object) -> None:
        """Set attributes. The state is set in no other way: the apps of a state are an index."""
        before = self.state
        for name, value in fields.items():
            setattr(self, name, value)
        if self.state is not before and self.on_state is not None:
            self.on_state(self, before)

    @property
    def owner(self) -> AppOwner:
        """Whose app it is."""
        return AppOwner(user=self.spec.user, queue=self.spec.queue, priority=self.spec.priority)

    def stored(self) -> StoredApp:
        """Return the entry in the form that the store keeps."""
        return StoredApp(
            app_id=self.app_id,
            name=self.spec.name,
            archive=self.archive,
            state=self.state,
            attempt=self.attempt,
            token=self.token_sha256,
            spec=app_to_message(self.spec).SerializeToString(deterministic=True),
            pid=self.pid,
            submitted_at_s=self.submitted_at_s,
            started_at_s=self.started_at_s,
            finished_at_s=self.finished_at_s,
            diagnostics=self.diagnostics,
            final={
                **self.attempt_losses.stored(),
                "gpu_time_s": self.gpu_time_s,
                "claimed_gpu_s": self.claimed_gpu_s,
                "claim_guessed": self.claim_guessed,
                "finish": _hex(self.finish),
                "kill_reason": self.kill_reason,
                "pause_reason": self.pause_reason,
                "paused_at_s": self.paused_at_s,
                "paused_s": self.paused_s,
                "unadmitted_s": self.unadmitted_s,
                "waits_since_s": self.waits_since_s,
                "progress": self.heartbeat.progress,
                **({"resting_view": self.resting_view.hex()} if self.resting_view else {}),
                **(self._last_heartbeat() if self._keeps_heartbeat else {}),
            },
        )

    @property
    def _keeps_heartbeat(self) -> bool:
        """Whether a restart finds its newest heartbeat in the store, since no app master may send it again."""
        return not self.is_active or bool(self.leave_reason or self.resting_view)

    def _last_heartbeat(self) -> dict[str, object]:
        """Return the fields that pages show of a paused or ended app. A running app's master sends them again."""
        heartbeat = pb.Heartbeat()
        heartbeat.CopyFrom(self.heartbeat)
        heartbeat.ClearField("loss_curves")
        if self.finish.jobs:
            heartbeat.ClearField("jobs")
        if not self.finish.loss_curves:
            heartbeat.loss_curves.extend(self._curves.values())
        return {"heartbeat": _hex(heartbeat), "page_url": self.page_url, "engine_id": self.engine_id}

    @classmethod
    def restored(cls, stored: StoredApp) -> AppEntry:
        """Return the entry of a stored app: without a session and, if the app is running, with its progress only."""
        number = partial(_finite, stored.final)
        heartbeat = pb.Heartbeat.FromString(bytes.fromhex(str(stored.final.get("heartbeat", ""))))
        heartbeat.progress = heartbeat.progress or number("progress") or 0.0
        entry = cls(
            app_id=stored.app_id,
            spec=app_from_message(pb.AppSpec.FromString(stored.spec)),
            submitted_at_s=stored.submitted_at_s,
            token_sha256=as_hashed(stored.token),
            state=stored.state,
            attempt=stored.attempt,
            pid=stored.pid,
            started_at_s=stored.started_at_s,
            finished_at_s=stored.finished_at_s,
            archive=stored.archive,
            diagnostics=stored.diagnostics,
            attempt_losses=AttemptLosses.restored(stored.final),
            gpu_time_s=number("gpu_time_s") or 0.0,
            claimed_gpu_s=number("claimed_gpu_s"),
            claim_guessed=stored.final.get("claim_guessed") is True,
            kill_reason=str(stored.final.get("kill_reason", "")),
            pause_reason=str(stored.final.get("pause_reason", "")),
            paused_at_s=number("paused_at_s"),
            paused_s=number("paused_s") or 0.0,
            waits_since_s=number("waits_since_s"),
            unadmitted_s=number("unadmitted_s") or 0.0,
            page_url=str(stored.final.get("page_url", "")),
            engine_id=str(stored.final.get("engine_id", "")),
            resting_view=bytes.fromhex(str(stored.final.get("resting_view", ""))),
            finish=pb.Finish.FromString(bytes.fromhex(str(stored.final.get("finish", "")))),
        )
        entry.take_heartbeat(heartbeat)
        return entry


def _finite(stored: Mapping[str, object], name: str) -> float | None:
    """A stored number, or None if there is none: a damaged row may hold anything, and sums need finite numbers."""
    value = stored.get(name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


_ENDS_OF_JOBS = frozenset(state.value for state in (JobState.FINISHED, *JOB_ENDS))


def _ended(job: pb.JobStatus) -> pb.JobStatus:
    """Return the job in an end state. If the app was ended by force, its master did not report the end of the job."""
    if job.state in _ENDS_OF_JOBS:
        return job
    ended = pb.JobStatus()
    ended.CopyFrom(job)
    ended.state, ended.gpus = JobState.KILLED.value, 0
    return ended


def _hex(message: pb.Heartbeat | pb.Finish) -> str:
    return str(message.SerializeToString(deterministic=True).hex())


class AppEntries:
    """All apps by id, in order of submission. An app can also be found by its name, see `get`.

    The apps that have not ended are an index, and so are those of each state, in their order (`AppEntry.update`).
    `version` grows whenever an app arrives, declares itself for the first time or anew (`take_heartbeat`), is admitted,
    paused or resumed, ends or is archived: what is computed from these is valid as long as it stays the same.

    `lost` holds the ids of apps whose rows in the store cannot be read. Their ids are not used again. Archived apps are
    in the store only; `archived` counts them by state.
    """

    def __init__(
        self,
        entries: Sequence[AppEntry] = (),
        lost: Iterable[str] = (),
        *,
        last_number: int = 0,
        archived: Mapping[AppState, int] | None = None,
        refusal_key: str = "",
    ) -> None:
        self.refusal_key = refusal_key
        """Proves refusals of attempts, also of apps that are no longer known (`themis.attempt_proof`)."""
        self._entries: dict[str, AppEntry] = {}
        self._living: dict[str, AppEntry] = {}
        # The number and the id of each app by state, sorted.
        self._by_state: dict[AppState, list[tuple[int, str]]] = {state: [] for state in AppState}
        self.lost = set(lost)
        self.archived = Counter(archived or {})
        self._last_number = max([last_number, *map(app_number, self.lost)])
        self.version = 0
        self.changed: set[str] = set()
        """Apps with a change that `version` counts, or a new heartbeat, since their one reader took them out."""
        self.heartbeats = 0
        """Heartbeats taken since the start."""
        self.refused_messages = 0
        """Messages of app masters that were refused since the start."""
        for entry in entries:
            self.add(entry)

    def __iter__(self) -> Iterator[AppEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: AppEntry) -> None:
        """Add a new app."""
        self._entries[entry.app_id] = entry
        if not entry.ended:
            self._living[entry.app_id] = entry
        insort(self._by_state[entry.state], (entry.number, entry.app_id))
        entry.on_state = self._moved
        self._last_number = max(self._last_number, entry.number)
        self._changed(entry.app_id)

    def _changed(self, app_id: str) -> None:
        self.version += 1
        self.changed.add(app_id)

    def _moved(self, entry: AppEntry, before: AppState) -> None:
        self._drop(entry, before)
        insort(self._by_state[entry.state], (entry.number, entry.app_id))
        if entry.ended:
            self._living.pop(entry.app_id, None)
        if entry.ended or AppState.PAUSED in (before, entry.state):
            self._changed(entry.app_id)

    def _drop(self, entry: AppEntry, state: AppState) -> None:
        apps = self._by_state[state]
        del apps[bisect_left(apps, (entry.number, entry.app_id))]

    def take_heartbeat(self, entry: AppEntry, heartbeat: pb.Heartbeat) -> None:
        """Take the newest heartbeat of an app. Declared times that move a little, as they are measured, are not new."""
        self.heartbeats += 1
        entry.take_heartbeat(heartbeat)
        time_s = math.fsum(phase.time_s for phase in entry.declaration.phases)
        if not math.isclose(time_s, entry.declared_time_s, rel_tol=_DECLARED_ANEW):
            entry.declared_time_s = time_s
            self.version += 1
        self.changed.add(entry.app_id)

    def note_admission(self, entry: AppEntry) -> None:
        """Note that an app was admitted after a wait."""
        self._changed(entry.app_id)

    def archive(self, app_ids: Iterable[str]) -> None:
        """Forget ended apps, which are archived now."""
        for app_id in app_ids:
            entry = self._entries.pop(app_id)
            self.archived[entry.state] += 1
            self._drop(entry, entry.state)
            self._changed(app_id)

    def next_id(self) -> str:
        """Return an unused id for the next app."""
        return f"app-{self._last_number + 1:04d}"

    def count(self, states: Collection[AppState] = ()) -> int:
        """Count the apps of some states, or all; archived ones too."""
        return sum(len(self._by_state[state]) + self.archived[state] for state in set(states or AppState))

    def lose(self, app_id: str) -> None:
        """Note that the store has an app of this id but nothing of it may run: it cannot be read, or has ended."""
        self.lost.add(app_id)
        self._last_number = max(self._last_number, app_number(app_id))

    def active(self, most: int | None = None) -> list[AppEntry]:
        """Return the apps that run or are to be started, in order of submission: all, or the first ones."""
        return list(itertools.islice((entry for entry in self._living.values() if entry.is_active), most))

    @property
    def has_living(self) -> bool:
        """Whether an app has not ended."""
        return bool(self._living)

    def living(self) -> list[AppEntry]:
        """Return the apps that have not ended, in order of submission: the active ones and those that are paused."""
        return list(self._living.values())

    def newest_first(
        self, states: Collection[AppState] = (), after: tuple[bool, float] = (False, -math.inf)
    ) -> Iterator[AppEntry]:
        """Yield the apps of some states, or all: those that have not ended, then the others, the newest of each first.

        `after` is whether the last app that is left out has ended, and its number, negative.
        """
        for ended in (False, True)[after[0] :]:
            below = (-after[1] if ended is after[0] else math.inf,)
            parts = [
                itertools.islice(reversed(apps), len(apps) - bisect_left(apps, below), None)
                for state, apps in self._by_state.items()
                if APP_LIFECYCLE.is_final(state) is ended and (not states or state in states)
            ]
            yield from (self._entries[app_id] for _, app_id in heapq.merge(*parts, reverse=True))

    def ended(self) -> Iterator[AppEntry]:
        """Yield the apps that have ended, the newest first."""
        return self.newest_first(after=(True, -math.inf))

    def find(self, app_id: str) -> AppEntry | None:
        """Return the app of an id, or None if there is none or it is archived."""
        return self._entries.get(app_id)

    def get(self, app_id: str, user: str = "") -> AppEntry:
        """Return the app of an id, or of a name: the running app of this name, else the newest one.

        Apps of `user` come before those of other users, who may choose the same name.

        Raises:
            UnknownNameError: No app has this id or name.
            InputError: Several running apps have this name.
        """
        if app_id in self._entries:
            return self._entries[app_id]
        named = [entry for entry in self._entries.values() if entry.spec.name == app_id]
        if not named:
            newest = itertools.islice(reversed(self._entries.values()), _NEAR_APPS)
            names = {name for entry in newest for name in (entry.app_id, entry.spec.name)}
            raise UnknownNameError("app", app_id, names, most=_IDS_SHOWN)
        named = [entry for entry in named if entry.spec.user == user] or named
        running = [entry for entry in named if not entry.ended]
        if len(running) > 1:
            ids = ", ".join(entry.app_id for entry in running[-_IDS_SHOWN:])
            raise InputError(
                f"{len(running)} running apps have this name", value=app_id, remedy=f"name one by its id, such as {ids}"
            )
        return (running or named)[-1]
