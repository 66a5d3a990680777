"""Run app masters as YARN applications. Tags identify the applications after a restart.

If an app master dies, YARN starts it again while the app has attempts left, and the new attempt registers with the next
number. One YARN application represents one launch and all its attempts.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rm_plugin.engines.port import AmExit, AmLaunch, EngineAttempts, HeldLock, NoLock, OnAmExit
from themis.config.rm_settings import YarnSettings
from themis.errors import ThemisError, UnreachableError
from themis.hadoop.errors import UnknownYarnAppError
from themis.hadoop.node_managers import living_containers
from themis.hadoop.quoting import command_line
from themis.hadoop.security import current_user, submission_tokens
from themis.hadoop.values import AppReport, AppState, AppSubmission, ExitCode, LocalResource, ProcessLaunch
from themis.hadoop.yarn_client import YarnClient
from themis.python_programs import module_command
from themis.threads import Threads
from themis.values import Value, repr_without

LOG = logging.getLogger("themis.rm.yarn")

APP_TYPE = "THEMIS"
DRAIN_LIMIT_S = 60.0
"""Seconds to wait until NodeManagers have ended a killed application's containers. After that, only log it."""
STOP_LIMIT_S = DRAIN_LIMIT_S + 30.0
"""Seconds that a stop waits for the ends of all applications. After that, it leaves and names the others."""
FORGOTTEN_S = 60.0
"""An application that is absent from YARN's lists for this long counts as forgotten. Time without lists is ignored."""
_DRAIN_POLL_S = 0.1
_CALLS = 16
"""Concurrent calls to YARN."""
_DRAINS = 8
"""Concurrent questions to NodeManagers, of which some may not answer."""
_QUEUED = frozenset((AppState.NEW, AppState.NEW_SAVING, AppState.SUBMITTED, AppState.ACCEPTED))
_LAUNCHED = "AM container is launched"
"""YARN's words for an application that is still ACCEPTED, since its master has not registered yet."""

_EXIT_CODE = re.compile(r"exited with\s+exitCode: (-?\d+)")
_TIME = re.compile(r"^\[\d[^\]]*\]\s*")
_FRAME = (
    "Exception from container-launch",
    "Container id:",
    "Exit code:",
    "Container exited with",
    "Container killed on request",
    "Killed by external signal",
    "Last 4096 bytes of",
    "Dump of the process-tree",
    "|-",
    "For more detailed output",
    ". Failing",
)
"""How the lines begin that YARN puts around the end of an app master's log."""

_TAKEN = (ExitCode.ABORTED, ExitCode.DISKS_FAILED, ExitCode.PREEMPTED, ExitCode.KILLED_BY_RM)
_APP_TAG = "themis-app:"
_ATTEMPT_TAG = "themis-attempt:"
_QUEUE_TAG = "themis-queue:"
"""Tag with the queue that an app has without an operator of YARN. If YARN reports another one, its operator moved it.

It is the same for all attempts, so that a later ResourceManager sees the move too.
"""
_LIVING = tuple(state for state in AppState if not state.is_final)


class AmTemplate(Value, frozen=True, kw_only=True):
    """The common launch settings of all app masters of a run."""

    python: str
    environment: Mapping[str, str]
    templates: Mapping[str, str]
    resources: tuple[LocalResource, ...]
    storage_of: Callable[[str], str]

    __repr__ = repr_without("environment")


@dataclass(slots=True, kw_only=True)
class _Followed:
    """A YARN application of this run. `attempt` is its first attempt. `over` is set once all of it has ended.

    `waiting` is the reason why no container of its app master runs, by the last report, and `am_host` the node of the
    newest that registered. `missing_since_s` is when YARN's lists began to lack it. `silent` are the nodes that did not
    answer at its end, and have not since.
    """

    app_id: str
    attempt: int
    yarn_app_id: str
    reported: bool = False
    waiting: str = ""
    queue: str = ""
    am_host: str = ""
    silent: frozenset[str] = frozenset()
    missing_since_s: float | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def number(self) -> int:
        """The last part of YARN's id, used as a process id."""
        return int(self.yarn_app_id.rpartition("_")[2])


class YarnAppLauncher:
    """An AppLauncher over YARN. Calls into Java run in threads, everything else in one event loop.

    Args:
        client: The connected client.
        run_id: Tags all applications of this ResourceManager's run, across its restarts.
        on_exit: Called for each YARN application that ended, after all its processes.
        template: Common launch settings of app masters.
        settings: Sizes, queue and intervals.
        node_addresses: Web addresses of the NodeManagers where an app may have containers. It is called with its id and
            the node of its app master.
        lock: Confirmed before each submission and each kill.
        admins: Administrators of the ResourceManager, who may look at all applications and kill them in YARN, too.
    """

    def __init__(
        self,
        client: YarnClient,
        run_id: str,
        on_exit: OnAmExit,
        *,
        template: AmTemplate,
        settings: YarnSettings,
        node_addresses: Callable[[str, str], Sequence[str]],
        lock: HeldLock | None = None,
        admins: Sequence[str] = (),
    ) -> None:
        self._admins = admins
        self._client = client
        self._lock = lock or NoLock()
        self._run_tag = f"themis-run:{run_id}"
        self._on_exit = on_exit
        self._template = template
        self._settings = settings
        self._node_addresses = node_addresses
        self._apps: dict[str, _Followed] = {}
        self._following: asyncio.Task[None] | None = None
        self._ends: set[asyncio.Task[None]] = set()
        # The queues into which operators of YARN moved apps: later attempts stay there.
        self._moved: dict[str, str] = {}
        self._unanswered: set[str] = set()
        self._lists = True
        self._closed = False
        self._calls = Threads("yarn", _CALLS)
        self._drains = Threads("node-managers", _DRAINS)

    async def launch(self, launch: AmLaunch) -> int:
        """Submit an application; returns the number in its id.

        Raises:
            UnreachableError: YARN is unavailable; what it may have taken all the same is followed by the next launch.
            ThemisError: YARN refuses it.
        """
        await self._end_followed(launch.app_id)
        if launch.app_id in self._unanswered and (taken := await self._answered(launch.app_id, launch.attempt)):
            LOG.info("%s attempt %d is %s, as submitted before", launch.app_id, launch.attempt, taken.yarn_app_id)
            return taken.number
        submission = await self._calls.run(self._submission, launch)
        await self._lock.confirm()
        yarn_app_id = await self._submit(launch.app_id, submission)
        LOG.info("%s attempt %d is %s", launch.app_id, launch.attempt, yarn_app_id)
        return self._follow(launch.app_id, launch.attempt, yarn_app_id).number

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """Follow the application that an earlier ResourceManager of this run submitted, if it is not over."""
        return await self._take_up(app_id, attempt) is not None

    def waiting(self, app_id: str) -> str:
        """Return why the application waits in YARN's queue, as YARN reported it last."""
        followed = self._apps.get(app_id)
        return "" if followed is None or followed.reported else followed.waiting

    def queue(self, app_id: str) -> str:
        """Return the queue to which an operator of YARN moved the app. Empty if it is where it was submitted."""
        return self._moved.get(app_id, "")

    def queues(self) -> frozenset[str]:
        """The YARN queues of all living applications, as YARN reported them last."""
        return frozenset(each.queue for each in self._apps.values() if each.queue and not each.reported)

    async def attempts(self, app_id: str, attempt: int) -> EngineAttempts:
        """Ask YARN, which starts further attempts by itself, how many it has started, and how they ended.

        Example: the node of an app master dies, which YARN notices after ten minutes. The app master is silent before
        and is killed here. Its node does not answer, so the site took it.
        """
        reports = await self._calls.run(self._client.reports, tags=(_app_tag(app_id),), states=_LIVING)
        mine = [report for report in reports if self._run_tag in report.tags]
        if not mine:
            followed = self._apps.get(app_id)
            if followed is None or not followed.over.is_set():
                return EngineAttempts(newest=attempt)
            taken = await self._taken(followed.attempt, followed.yarn_app_id)
            return EngineAttempts(newest=attempt, taken=taken | {attempt} if followed.silent else taken)
        first = _first_attempt(mine[-1], attempt)
        newest = max(attempt, first + max(0, mine[-1].attempt - 1))
        return EngineAttempts(newest=newest, taken=await self._taken(first, mine[-1].yarn_app_id))

    async def _taken(self, first: int, yarn_app_id: str) -> frozenset[int]:
        """The attempts of the app that YARN's own limit of attempts does not count either."""
        reports = await self._calls.run(self._client.attempts, yarn_app_id)
        return frozenset(first + each.number - 1 for each in reports if _exit_code(each.diagnostics) in _TAKEN)

    async def kill(self, app_id: str) -> None:
        """Kill the app's YARN application; returns when its NodeManagers have ended all of it."""
        if app_id in self._unanswered or app_id not in self._apps:
            # An earlier ResourceManager of this run may have submitted it, too.
            await self._answered(app_id, attempt=1)
        await self._end_followed(app_id)

    async def _end_followed(self, app_id: str) -> None:
        followed = self._apps.get(app_id)
        if followed is None or followed.over.is_set():
            return
        # As the port requires, the exit of an application that is ended here is reported only once it is over.
        await self._kill(followed, "the Themis ResourceManager ends it")
        await followed.over.wait()

    async def shutdown(self) -> None:
        """Kill every application of this run, and wait for their ends, but not longer than `STOP_LIMIT_S`.

        Those that cannot be killed in this time are left to YARN, and named in the error.
        """
        self._closed = True
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._lock.confirm()
                left = await self._kill_all()
                if self._ends:
                    await asyncio.wait(self._ends)
                    # Handling a reported end may have launched another application meanwhile.
                    left = await self._kill_all()
        except TimeoutError:
            living = {app_id for app_id, followed in self._apps.items() if not followed.over.is_set()}
            left = sorted(living | self._unanswered)
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if left:
            raise UnreachableError("not all applications could be killed in YARN", value=", ".join(left))

    def close(self) -> None:
        """Follow nothing more, and end the threads once their calls have returned. Applications live on."""
        for task in (self._following, *self._ends):
            if task is not None:
                task.cancel()
        self._calls.close()
        self._drains.close()

    # ---- submitting ----

    async def _submit(self, app_id: str, submission: AppSubmission) -> str:
        # Until YARN has answered it may have taken it or not: the answer can be lost, and this call be cancelled.
        self._unanswered.add(app_id)
        try:
            yarn_app_id = await self._calls.run(self._client.submit, submission)
        except UnreachableError:
            self._unanswered.add(app_id)
            raise
        except ThemisError:
            self._unanswered.discard(app_id)
            raise
        self._unanswered.discard(app_id)
        return yarn_app_id

    async def _answered(self, app_id: str, attempt: int) -> _Followed | None:
        """What YARN made of a submission whose answer was lost, followed from now on; None when nothing of it lives."""
        taken = await self._take_up(app_id, attempt)
        self._unanswered.discard(app_id)
        return taken

    def _submission(self, launch: AmLaunch) -> AppSubmission:
        template, settings = self._template, self._settings
        environment = {
            **template.environment,
            **launch.environment,
            "THEMIS_APP_ID": launch.app_id,
            "THEMIS_ATTEMPT": str(launch.attempt),
            "THEMIS_APP_DIR": "app",
            "THEMIS_STORAGE_URI": template.storage_of(launch.app_id),
        }
        # YARN takes tags of ASCII only.
        user = launch.user.encode("ascii", "replace").decode()
        queue = settings.queue or launch.queue or "default"
        ascii_queue = queue.encode("ascii", "replace").decode()
        tags = (f"{_ATTEMPT_TAG}{launch.attempt}", f"user:{user}"[:100], f"{_QUEUE_TAG}{ascii_queue}"[:100])
        acl = _acl(launch.user, current_user(), *self._admins)
        return AppSubmission(
            name=launch.name or launch.app_id,
            launch=ProcessLaunch(
                commands=(command_line(module_command("am.main", python=template.python)),),
                environment=environment,
                environment_templates=template.templates,
                resources=template.resources,
                tokens=submission_tokens(app_token=launch.token),
            ),
            memory_mb=settings.am_memory_mb,
            vcores=settings.am_vcores,
            queue=self._moved.get(launch.app_id, queue),
            node_label=settings.node_label,
            app_type=APP_TYPE,
            tags=frozenset((self._run_tag, _app_tag(launch.app_id), *tags)),
            max_attempts=max(1, launch.attempts_left),
            attempt_failures_validity_ms=_milliseconds(launch.failures_window_s),
            keep_containers=True,
            user=launch.user if settings.as_submitter else "",
            view_acl=acl,
            modify_acl=acl,
        )

    # ---- following ----

    async def _take_up(self, app_id: str, attempt: int) -> _Followed | None:
        """Follow the app's newest application of this run that lives; without one wait for what the last one left."""
        reports = await self._calls.run(self._client.reports, tags=(_app_tag(app_id),), states=_LIVING)
        mine = [report for report in reports if self._run_tag in report.tags]
        if not mine:
            await self._drained(_Followed(app_id=app_id, attempt=attempt, yarn_app_id=await self._last_of(app_id)))
            return None
        newest = mine[-1]
        return self._follow(app_id, _first_attempt(newest, attempt), newest.yarn_app_id)

    async def _last_of(self, app_id: str) -> str:
        """YARN's id of the app's newest application of this run, over or not; empty when there never was one."""
        reports = await self._calls.run(self._client.reports, tags=(_app_tag(app_id),))
        return next((report.yarn_app_id for report in reversed(reports) if self._run_tag in report.tags), "")

    def _follow(self, app_id: str, attempt: int, yarn_app_id: str) -> _Followed:
        followed = self._apps.get(app_id)
        # A kill may already have found this application by its tag. Its waiters must learn of the end.
        if followed is None or followed.yarn_app_id != yarn_app_id:
            followed = self._apps[app_id] = _Followed(app_id=app_id, attempt=attempt, yarn_app_id=yarn_app_id)
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._poll())
        return followed

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_s)
            waiting = {each.yarn_app_id: each for each in self._apps.values() if not each.reported}
            if waiting and (reports := await self._listed(waiting.values())) is not None:
                self._note_reports(waiting, reports)

    async def _listed(self, waiting: Collection[_Followed]) -> Sequence[AppReport] | None:
        """Return YARN's reports of these apps, None if it gives none now. An outage is logged as it begins and ends."""
        # Not by the run's tag: YARN remembers what is over too, and each look would cost more than the last.
        tags = tuple(sorted({_app_tag(each.app_id) for each in waiting}))
        try:
            reports = await self._calls.run(self._client.reports, tags=tags)
        except ThemisError as error:
            if self._lists:
                LOG.warning("YARN does not list its applications: %s", error)
            self._lists = False
            return None
        except Exception:
            # Survive a defect in handling one answer: without this poll no end would be reported.
            LOG.exception("YARN's applications cannot be read")
            return None
        if not self._lists:
            LOG.info("YARN lists its applications again")
        self._lists = True
        return reports

    def _note_reports(self, waiting: Mapping[str, _Followed], reports: Iterable[AppReport]) -> None:
        now_s = time.monotonic()
        found = {report.yarn_app_id: report for report in reports}
        for yarn_app_id, followed in waiting.items():
            report = found.get(yarn_app_id)
            if report is not None:
                followed.missing_since_s, followed.waiting = None, _queued(report)
                followed.am_host = report.am_host or followed.am_host
                self._note_queue(followed, report)
            elif followed.missing_since_s is None:
                followed.missing_since_s = now_s
            # A ResourceManager of YARN's that was started without its recovery knows nothing of it any more.
            missing_since_s = followed.missing_since_s
            forgotten = missing_since_s is not None and now_s - missing_since_s > FORGOTTEN_S
            if forgotten or (report is not None and report.state.is_final):
                self._over(followed, report)

    def _note_queue(self, followed: _Followed, report: AppReport) -> None:
        if report.queue == followed.queue or not report.queue:
            return
        followed.queue = report.queue
        if _is_moved(report):
            LOG.info("%s was moved to the queue %s in YARN", followed.app_id, report.queue)
            self._moved[followed.app_id] = report.queue.removeprefix("root.")
        else:
            self._moved.pop(followed.app_id, None)

    def _over(self, followed: _Followed, report: AppReport | None) -> None:
        """Report an end in a separate task: `on_exit` may launch and kill, which wait for the poll to continue."""
        followed.reported = True
        task = asyncio.get_running_loop().create_task(self._report_over(followed, report))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _report_over(self, followed: _Followed, report: AppReport | None) -> None:
        try:
            await self._drained(followed)
            followed.over.set()
            LOG.info("%s (%s) is over", followed.app_id, report.state.value if report else followed.yarn_app_id)
            if not self._closed:
                await self._on_exit(_exit(followed, report, await self._taken_of(followed)))
        except Exception:
            # Whatever it was, the other applications must be followed.
            LOG.exception("the end of %s could not be reported", followed.yarn_app_id)
        finally:
            followed.over.set()

    async def _taken_of(self, followed: _Followed) -> frozenset[int]:
        try:
            return await self._taken(followed.attempt, followed.yarn_app_id)
        except ThemisError as error:
            LOG.warning("YARN does not say how the attempts of %s ended: %s", followed.app_id, error)
            return frozenset()

    async def _kill_all(self) -> list[str]:
        """Kill every application of this run. Returns the apps for which that failed."""
        is_listed = await self._follow_all()
        app_ids = sorted({*self._apps, *self._unanswered})
        results = await asyncio.gather(*(self.kill(app_id) for app_id in app_ids), return_exceptions=True)
        left = {app_id: end for app_id, end in zip(app_ids, results, strict=True) if isinstance(end, BaseException)}
        for app_id, error in left.items():
            LOG.error("%s may still run in YARN: %s", app_id, error)
        return [*left, *([] if is_listed else ["those that YARN does not list"])]

    async def _follow_all(self) -> bool:
        """Follow all that lives of this run, as a recovery may not have come to it. Returns whether YARN lists it."""
        try:
            reports = await self._calls.run(self._client.reports, tags=(self._run_tag,), states=_LIVING)
        except ThemisError as error:
            LOG.error("YARN does not list the applications of this run: %s", error)
            return False
        for report in reports:
            app_id = next((tag.removeprefix(_APP_TAG) for tag in report.tags if tag.startswith(_APP_TAG)), "")
            if app_id not in self._apps or self._apps[app_id].over.is_set():
                self._follow(app_id, _first_attempt(report, known=1), report.yarn_app_id)
        return True

    async def _kill(self, followed: _Followed, reason: str) -> None:
        try:
            await self._lock.confirm()
            await self._calls.run(self._client.kill, followed.yarn_app_id, reason)
        except UnknownYarnAppError:
            # YARN forgot it, and the poll will see that.
            LOG.warning("YARN does not know %s any more", followed.yarn_app_id)

    async def _drained(self, followed: _Followed) -> None:
        """Wait until no NodeManager runs the application's containers. YARN counts its GPUs as free earlier."""
        deadline_s = time.monotonic() + DRAIN_LIMIT_S
        while followed.yarn_app_id:
            # Read the addresses each time, so that a node lost meanwhile is skipped.
            addresses = self._node_addresses(followed.app_id, followed.am_host)
            left = await self._drains.run(living_containers, addresses, followed.yarn_app_id)
            # A node that is not asked any more is lost: it does not answer again.
            followed.silent = (followed.silent - set(addresses)) | set(left.silent)
            if not left.living and not left.silent:
                return
            if time.monotonic() > deadline_s:
                is_left = f"containers {left.living} run, and nodes {left.silent} do not answer"
                LOG.warning("%s is taken for gone, although %s", followed.yarn_app_id, is_left)
                return
            await asyncio.sleep(_DRAIN_POLL_S)


def _queued(report: AppReport) -> str:
    """Return why the container of an application's master was not started yet; empty once it was."""
    if report.state not in _QUEUED or _LAUNCHED in report.diagnostics:
        return ""
    # YARN puts the time of the last change before its reason.
    reason = re.sub(r"^\[[^\]]*\]\s*", "", report.diagnostics.strip())
    return f"waits in YARN's queue {report.queue}: {reason or 'no reason given'}"


def _is_moved(report: AppReport) -> bool:
    """Whether an application is in another queue than its tag says. YARN may report the path for the name."""
    tagged = [tag.removeprefix(_QUEUE_TAG) for tag in report.tags if tag.startswith(_QUEUE_TAG)]
    if not tagged:
        return False
    names = (tagged[0].lower(), report.queue.lower())
    return names[0] != names[1] and not any(one.endswith(f".{other}") for one, other in (names, names[::-1]))


def _exit(followed: _Followed, report: AppReport | None, taken: frozenset[int]) -> AmExit:
    restarts, code, killed, words = 0, None, "", ""
    if report is not None:
        restarts = max(0, report.attempt - 1)
        if report.state is AppState.FINISHED:
            code = 0
        elif report.state is AppState.KILLED:
            killed = report.diagnostics.strip() or "killed in YARN"
        else:
            code, words = _exit_code(report.diagnostics), _last_words(report.diagnostics)
    return AmExit(
        app_id=followed.app_id,
        attempt=followed.attempt + restarts,
        restarts=restarts,
        pid=followed.number,
        exit_code=code,
        killed=killed,
        last_words=words,
        taken=taken,
    )


def _exit_code(diagnostics: str) -> int | None:
    # YARN's own words come first. What the app master wrote follows, and could look the same.
    code = _EXIT_CODE.search(diagnostics)
    return int(code[1]) if code else None


def _last_words(diagnostics: str) -> str:
    """The last line that an app master wrote, or YARN's reason for its end; empty if YARN quotes neither."""
    lines = [_TIME.sub("", line.strip()) for line in diagnostics.partition("Diagnostics:")[2].splitlines()]
    return next((line[:300] for line in reversed(lines) if line and not line.startswith(_FRAME)), "")


def _acl(*users: str) -> str:
    """Who may look at an app and kill it where YARN checks: its submitter, the service's user and administrators."""
    # After a blank come groups, and a comma ends a name: who is called so cannot be named.
    return ",".join(sorted({user for user in users if user and not re.search(r"[\s,*]", user)}))


def _app_tag(app_id: str) -> str:
    return f"{_APP_TAG}{app_id}"


def _milliseconds(window_s: float) -> int:
    """A time as YARN counts it; -1 stands for ever."""
    return -1 if math.isinf(window_s) else int(1000 * window_s)


def _first_attempt(report: AppReport, known: int) -> int:
    """The attempt of the app as which an application began; later ones are YARN's own.

    Args:
        report: The application.
        known: The newest attempt that registered, which may be an earlier one than runs now.
    """
    tagged = [tag.removeprefix(_ATTEMPT_TAG) for tag in report.tags if tag.startswith(_ATTEMPT_TAG)]
    # Without the tag it was submitted by an older version.
    return int(tagged[0]) if tagged else max(1, known - max(0, report.attempt - 1))
