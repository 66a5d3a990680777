"""App masters as YARN applications, with a fake YARN client."""

import asyncio
import math
import threading
from pathlib import Path

import pytest
from losable_lock import LosableLock
from msgspec.structs import replace

from rm_plugin.engines import yarn_launcher
from rm_plugin.engines.folder_lock import LockLostError
from rm_plugin.engines.port import AmExit, AmLaunch, EngineAttempts
from rm_plugin.engines.yarn_launcher import AmTemplate, YarnAppLauncher
from themis.config.rm_settings import YarnSettings
from themis.errors import UnreachableError
from themis.hadoop.node_managers import NodesReply
from themis.hadoop.values import AppReport, AppState, AttemptReport, FinalStatus

TEMPLATE = AmTemplate(
    python="py", environment={"A": "1", "THEMIS_APP_DIR": "theirs"}, templates={"PYTHONPATH": "{{PWD}}/x"},
    resources=(), storage_of=lambda app_id: f"hdfs:///s/{app_id}",
)  # fmt: skip


class FakeYarn:
    """Applications in memory."""

    def __init__(self):
        self.apps = {}
        self.submissions = []
        self.ended_attempts = ()

    def submit(self, submission):
        self.submissions.append(submission)
        yarn_app_id = f"application_17_{len(self.submissions):04d}"
        self.apps[yarn_app_id] = AppReport(
            yarn_app_id=yarn_app_id, name=submission.name, user="u", queue=submission.queue, app_type="THEMIS",
            tags=submission.tags, state=AppState.RUNNING, final_status=FinalStatus.UNDEFINED, progress=0.0,
            tracking_url="", am_host="", am_rpc_port=0, attempt=1, diagnostics="", started_at_s=0.0, finished_at_s=None,
        )  # fmt: skip
        return yarn_app_id

    def reports(self, *, tags=(), states=()):
        return tuple(app for app in self.apps.values() if set(tags) & app.tags and (not states or app.state in states))

    def attempts(self, yarn_app_id):
        return self.ended_attempts

    def kill(self, yarn_app_id, reason):
        self.end(yarn_app_id, AppState.KILLED, diagnostics=reason)

    def end(self, yarn_app_id, state, **changes):
        self.apps[yarn_app_id] = replace(self.apps[yarn_app_id], state=state, **changes)


@pytest.fixture
def living(monkeypatch):
    """The answers of NodeManagers, one after the other: the containers that run, or a whole one."""
    answers = []

    def answer(addresses, _yarn_app_id):
        found = answers.pop(0) if answers else ()
        return found if isinstance(found, NodesReply) else NodesReply(living=found)

    monkeypatch.setattr(yarn_launcher, "living_containers", answer)
    monkeypatch.setattr(yarn_launcher, "submission_tokens", lambda **_: b"")
    monkeypatch.setattr(yarn_launcher, "current_user", lambda: "themis")
    monkeypatch.setattr(yarn_launcher, "_DRAIN_POLL_S", 0.01)
    return answers


def order(app_id="app-1", attempt=1, **more):
    values = {"environment": {"THEMIS_APP_DIR": "/here", "B": "2"}, "working_dir": Path("/here"), **more}
    return AmLaunch(app_id=app_id, attempt=attempt, **values)


def run(yarn, scenario, react=None, lock=None, **settings):
    async def whole():
        exits = []

        async def on_exit(end):
            if react is not None:
                await react(launcher, end)
            exits.append(end)

        launcher = YarnAppLauncher(
            yarn, "run7", on_exit, template=TEMPLATE, settings=YarnSettings(poll_s=0.01, **settings),
            node_addresses=lambda app_id, host: ("n1:8042",), lock=lock, admins=("chief",),
        )  # fmt: skip
        try:
            return await scenario(launcher, exits)
        finally:
            await launcher.shutdown()

    return asyncio.run(asyncio.wait_for(whole(), 60))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_submission_has_command_resources_and_tags(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        return await launcher.launch(order(name="mine", user="ada", queue="research", attempts_left=2))

    assert run(yarn, scenario) == 1
    (submission,) = yarn.submissions
    assert (submission.name, submission.queue, submission.max_attempts) == ("mine", "research", 2)
    assert submission.keep_containers and submission.user == ""
    assert submission.tags == {
        "themis-run:run7",
        "themis-app:app-1",
        "themis-attempt:1",
        "user:ada",
        "themis-queue:research",
    }
    assert (submission.view_acl, submission.modify_acl) == ("ada,chief,themis", "ada,chief,themis")
    assert submission.launch.environment == {
        "A": "1", "B": "2", "THEMIS_APP_DIR": "app", "THEMIS_APP_ID": "app-1", "THEMIS_ATTEMPT": "1",
        "THEMIS_STORAGE_URI": "hdfs:///s/app-1",
    }  # fmt: skip
    assert submission.launch.environment_templates == {"PYTHONPATH": "{{PWD}}/x"}


def test_without_the_lock_nothing_is_submitted_or_killed(living):
    yarn, lock = FakeYarn(), LosableLock()

    async def scenario(launcher, exits):
        await launcher.launch(order())
        lock.left = 0
        acts = (launcher.launch(order(attempt=2)), launcher.launch(order("app-2")), launcher.kill("app-1"))
        for act in (*acts, launcher.shutdown()):
            with pytest.raises(LockLostError):
                await act
        assert [app.state for app in yarn.apps.values()] == [AppState.RUNNING]
        lock.left = math.inf

    run(yarn, scenario, lock=lock)


@pytest.mark.parametrize(
    ("reported", "moved", "kept"),
    [("vision", "vision", "vision"), ("root.a.vision", "a.vision", "a.vision"), ("root.research", "", "research")],
)
def test_next_attempt_stays_in_the_queue_to_which_yarns_operator_moved_the_app(living, reported, moved, kept):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order(queue="research"))
        (yarn_app_id,) = yarn.apps
        assert (launcher.queue("app-1"), launcher.queues()) == ("", frozenset())
        yarn.end(yarn_app_id, AppState.RUNNING, queue=reported)
        await until(launcher.queues)
        assert (launcher.queue("app-1"), launcher.queues()) == (moved, {reported})
        yarn.end(yarn_app_id, AppState.FAILED)
        await until(lambda: exits)
        assert launcher.queues() == frozenset()
        await launcher.launch(order(queue="research", attempt=2))

    run(yarn, scenario)
    assert yarn.submissions[1].queue == kept


def test_later_resource_manager_keeps_the_queue_of_a_moved_app(living):
    yarn = FakeYarn()

    async def first(launcher, exits):
        await launcher.launch(order(queue="research"))

    async def second(launcher, exits):
        (yarn_app_id,) = yarn.apps
        assert await launcher.adopt("app-1", 1, 1)
        await until(lambda: launcher.queue("app-1"))
        yarn.end(yarn_app_id, AppState.FAILED)
        await until(lambda: exits)
        await launcher.launch(order(queue="research", attempt=2))

    # A former ResourceManager that did not stop in good order.
    yarn.kill = lambda yarn_app_id, reason: None
    living_app = asyncio.run(submitted(yarn, first))
    yarn.end(living_app, AppState.RUNNING, queue="vision")
    yarn.kill = lambda yarn_app_id, reason: yarn.end(yarn_app_id, AppState.KILLED, diagnostics=reason)
    run(yarn, second)
    assert yarn.submissions[1].queue == "vision"


def test_app_that_was_moved_back_returns_to_its_own_queue(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order(queue="research"))
        for attempt, queue, moved in ((2, "vision", "vision"), (3, "research", "")):
            newest = list(yarn.apps)[-1]
            yarn.end(newest, AppState.RUNNING, queue=queue)
            await until(lambda queue=queue: launcher.queues() == {queue})
            assert launcher.queue("app-1") == moved
            yarn.end(newest, AppState.FAILED)
            await until(lambda attempt=attempt: len(exits) == attempt - 1)
            await launcher.launch(order(queue="research", attempt=attempt))

    run(yarn, scenario)
    assert [each.queue for each in yarn.submissions] == ["research", "vision", "research"]
    assert len({tag for each in yarn.submissions for tag in each.tags if tag.startswith("themis-queue:")}) == 1


async def submitted(yarn, scenario):
    """Run a scenario with a launcher that does not shut down. Returns YARN's id of the app."""

    async def on_exit(end):
        pass

    settings = YarnSettings(poll_s=0.01)
    launcher = YarnAppLauncher(
        yarn, "run7", on_exit, template=TEMPLATE, settings=settings, node_addresses=lambda app_id: ()
    )
    await scenario(launcher, [])
    (yarn_app_id,) = yarn.apps
    return yarn_app_id


INACTIVE = "[Wed Nov 25 12:00:00 +0000 2026] Application is added to the scheduler and is not yet activated. "
LAUNCHED = "[Wed Nov 25 12:00:00 +0000 2026] AM container is launched, waiting for AM container to Register with RM"


def test_application_waits_until_the_container_of_its_master_is_launched(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        assert launcher.waiting("app-1") == ""
        await launcher.launch(order(queue="research"))
        (yarn_app_id,) = yarn.apps
        yarn.end(yarn_app_id, AppState.ACCEPTED, diagnostics=INACTIVE)
        await until(lambda: launcher.waiting("app-1"))
        reason = launcher.waiting("app-1")
        yarn.end(yarn_app_id, AppState.ACCEPTED, diagnostics=LAUNCHED)
        await until(lambda: not launcher.waiting("app-1"))
        yarn.end(yarn_app_id, AppState.SUBMITTED, diagnostics="")
        await until(lambda: launcher.waiting("app-1"))
        no_reason = launcher.waiting("app-1")
        yarn.end(yarn_app_id, AppState.RUNNING)
        await until(lambda: not launcher.waiting("app-1"))
        return reason, no_reason

    assert run(yarn, scenario) == (
        "waits in YARN's queue research: Application is added to the scheduler and is not yet activated.",
        "waits in YARN's queue research: no reason given",
    )


def test_losses_of_attempts_count_in_yarn_within_the_same_window(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order(failures_window_s=3600.0))
        await launcher.launch(order(app_id="app-2"))

    run(yarn, scenario)
    assert [each.attempt_failures_validity_ms for each in yarn.submissions] == [3_600_000, -1]


def test_tags_are_ascii(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order(user="josé"))

    run(yarn, scenario)
    assert "user:jos?" in yarn.submissions[0].tags


@pytest.mark.parametrize("user", ["ada admins", "ada,bob", "*"])
def test_user_name_cannot_widen_access_list(living, user):
    """In an access list a blank begins groups, a comma another user, and a star means all users."""
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order(user=user))

    run(yarn, scenario)
    assert yarn.submissions[0].modify_acl == "chief,themis"


def test_unreadable_answer_does_not_end_polling(living, caplog):
    yarn = FakeYarn()
    answers = yarn.reports

    def broken(**filters):
        yarn.reports = answers
        raise ValueError("what is that?")

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.reports = broken
        await until(lambda: "cannot be read" in caplog.text)
        yarn.end("application_17_0001", AppState.FINISHED)
        await until(lambda: exits)
        return exits

    assert [end.exit_code for end in run(yarn, scenario)] == [0]


def test_outage_of_yarn_is_logged_as_it_begins_and_as_it_ends(living, caplog):
    yarn = FakeYarn()
    answers = yarn.reports
    asked = []

    def unavailable(**filters):
        asked.append(None)
        raise UnreachableError("YARN is unavailable")

    async def scenario(launcher, exits):
        await launcher.launch(order())
        caplog.clear()
        yarn.reports = unavailable
        await until(lambda: len(asked) > 3)
        yarn.reports = answers
        yarn.end("application_17_0001", AppState.FINISHED)
        await until(lambda: exits)

    caplog.set_level("INFO")
    run(yarn, scenario)
    assert [record.getMessage() for record in caplog.records if "list" in record.getMessage()] == [
        "YARN does not list its applications: YARN is unavailable",
        "YARN lists its applications again",
    ]


def test_queue_of_settings_overrides_apps_queue(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order(user="ada", queue="research"))

    run(yarn, scenario, queue="themis", as_submitter=True)
    assert (yarn.submissions[0].queue, yarn.submissions[0].user) == ("themis", "ada")


def test_end_is_reported_once_after_containers_ended(living):
    yarn = FakeYarn()
    living.extend([("c1",), ("c1",)])

    async def scenario(launcher, exits):
        await launcher.launch(order(attempt=3))
        yarn.end("application_17_0001", AppState.FAILED, attempt=2)
        await until(lambda: exits)
        assert living == []
        await asyncio.sleep(0.05)
        return exits

    assert run(yarn, scenario) == [AmExit(app_id="app-1", attempt=4, restarts=1, pid=1, exit_code=None)]


@pytest.mark.parametrize(
    ("code", "taken"), [(-100, {3}), (-101, {3}), (-102, {3}), (-106, {3}), (-104, set()), (1, set())]
)
def test_attempts_that_the_site_took_are_told(living, code, taken):
    """They are attempts of the app: the application began as attempt 3."""
    yarn = FakeYarn()
    words = f"AM Container for appattempt_17_0001_000001 exited with  exitCode: {code}\nFailing this attempt."
    yarn.ended_attempts = (
        AttemptReport(number=1, diagnostics=words),
        AttemptReport(number=2, diagnostics="AM Container for appattempt_17_0001_000002 exited with  exitCode: 1"),
    )

    async def scenario(launcher, exits):
        await launcher.launch(order(attempt=3))
        yarn.apps["application_17_0001"] = replace(yarn.apps["application_17_0001"], attempt=2)
        attempts = await launcher.attempts("app-1", 3)
        yarn.end("application_17_0001", AppState.FAILED)
        await until(lambda: exits)
        return attempts, exits[0].taken

    assert run(yarn, scenario) == (EngineAttempts(newest=4, taken=frozenset(taken)), taken)


SILENT = NodesReply(silent=("n1:8042",))


@pytest.mark.parametrize(
    ("replies", "nodes", "taken"),
    [
        ([SILENT] * 1000, ["n1:8042"], {3}),
        # YARN takes the node for lost, and it is not asked any more.
        ([SILENT, (), ()], ["n1:8042", None], {3}),
        # One timeout: it answers again.
        ([SILENT, ("c1",), ()], ["n1:8042"], set()),
        ([("c1",), ()], ["n1:8042"], set()),
    ],
)
def test_attempt_that_was_killed_while_its_node_does_not_answer_was_taken_by_the_site(
    living, monkeypatch, replies, nodes, taken
):
    """YARN takes the node for lost much later."""
    yarn = FakeYarn()
    living.extend(replies)
    monkeypatch.setattr(yarn_launcher, "DRAIN_LIMIT_S", 0.1)

    async def scenario(launcher, exits):
        rest = iter(nodes)
        last = [nodes[-1]]
        launcher._node_addresses = lambda app_id, host: [node for node in [next(rest, last[0])] if node]
        await launcher.launch(order(attempt=3))
        await launcher.kill("app-1")
        living.clear()
        return await launcher.attempts("app-1", 3)

    assert run(yarn, scenario) == EngineAttempts(newest=3, taken=frozenset(taken))


def test_node_of_the_app_master_is_asked_too(living, monkeypatch):
    yarn, asked = FakeYarn(), []

    async def scenario(launcher, exits):
        launcher._node_addresses = lambda app_id, host: asked.append((app_id, host)) or ()
        await launcher.launch(order())
        yarn.apps["application_17_0001"] = replace(yarn.apps["application_17_0001"], am_host="n7")
        await until(lambda: launcher._apps["app-1"].am_host)
        await launcher.kill("app-1")

    run(yarn, scenario)
    assert asked == [("app-1", "n7")]


def test_end_is_reported_also_if_yarn_does_not_say_how_the_attempts_ended(living, monkeypatch):
    yarn = FakeYarn()

    def away(_yarn_app_id):
        raise UnreachableError("YARN is unavailable")

    monkeypatch.setattr(yarn, "attempts", away)

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.FAILED)
        await until(lambda: exits)
        return exits[0].taken

    assert run(yarn, scenario) == frozenset()


SCRIPT_FAILED = """\
[2026-11-27 10:13:53.340]Container exited with a non-zero exit code 2. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of stderr :
Traceback
app master: package torch is missing


"""

FAILED_BY_ITSELF = f"""\
Application application_17_0001 failed 2 times due to AM Container for appattempt_17_0001_000002 exited with\
  exitCode: 2
Failing this attempt.Diagnostics: [2026-11-27 10:13:53.339]Exception from container-launch.
Container id: container_17_0001_02_000001
Exit code: 2

{SCRIPT_FAILED}{SCRIPT_FAILED}For more detailed output, check the application tracking page: http://rm:8088/cluster/app/\
application_17_0001 Then click on links to logs of each attempt.
. Failing the application."""

OUT_OF_MEMORY = """\
Application application_17_0001 failed 1 times due to AM Container for appattempt_17_0001_000001 exited with\
  exitCode: -104
Failing this attempt.Diagnostics: [2026-11-27 10:13:53.339]Container is running 90112B beyond the\
 'PHYSICAL' memory limit.
Dump of the process-tree for container_17_0001_01_000001 :
\t|- PID PPID
\t|- 7 5

[2026-11-27 10:13:53.350]Container killed on request. Exit code is 143
For more detailed output, check the application tracking page
. Failing the application."""


@pytest.mark.parametrize(
    ("diagnostics", "code", "words"),
    [
        (FAILED_BY_ITSELF, 2, "app master: package torch is missing"),
        (OUT_OF_MEMORY, -104, "Container is running 90112B beyond the 'PHYSICAL' memory limit."),
        ("Application application_17_0001 was refused by its queue", None, ""),
    ],
)
def test_end_names_the_exit_code_and_last_words_that_yarn_quotes(living, diagnostics, code, words):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.FAILED, diagnostics=diagnostics)
        await until(lambda: exits)
        return exits

    (end,) = run(yarn, scenario)
    assert (end.exit_code, end.last_words) == (code, words)


def test_ended_application_is_not_polled(living):
    yarn = FakeYarn()
    asked = []
    reports = yarn.reports
    yarn.reports = lambda *, tags, states=(): asked.append(tags) or reports(tags=tags, states=states)

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.FINISHED)
        await until(lambda: exits)
        asked.clear()
        await asyncio.sleep(0.05)
        assert asked == []
        await launcher.launch(order(app_id="app-2"))
        await until(lambda: asked)
        assert set(asked) == {("themis-app:app-2",)}

    run(yarn, scenario)


def test_kill_by_operator_is_reported_as_kill(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.KILLED, diagnostics=" killed by ada\n")
        await until(lambda: exits)
        return exits[0].killed

    assert run(yarn, scenario) == "killed by ada"


def test_kill_returns_after_all_containers_ended(living):
    yarn = FakeYarn()
    living.extend([("c1",), ("c1",)])

    async def scenario(launcher, exits):
        await launcher.launch(order())
        await launcher.kill("app-1")
        assert living == []
        await launcher.kill("app-1")
        await launcher.kill("unknown")

    run(yarn, scenario)


def test_next_launch_ends_previous_application(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order())
        assert await launcher.launch(order(attempt=2)) == 2

    run(yarn, scenario)
    assert yarn.apps["application_17_0001"].state is AppState.KILLED


def test_application_of_an_earlier_resource_manager_is_killed(living):
    """Its app rests, or cannot be read from the store, so that nobody adopts it first."""
    yarn = FakeYarn()

    async def first(launcher, exits):
        await launcher.launch(order())
        launcher._apps.clear()

    run(yarn, first)

    async def second(launcher, exits):
        await launcher.kill("app-1")
        assert yarn.apps["application_17_0001"].state is AppState.KILLED

    run(yarn, second)


def test_only_application_of_this_run_is_adopted(living):
    yarn = FakeYarn()

    async def first(launcher, exits):
        await launcher.launch(order())
        launcher._apps.clear()

    run(yarn, first)
    yarn.apps["application_17_0001"] = replace(yarn.apps["application_17_0001"], attempt=2, state=AppState.RUNNING)

    async def second(launcher, exits):
        assert not await launcher.adopt("app-2", 1, 1)
        assert await launcher.adopt("app-1", 2, 1)
        yarn.end("application_17_0001", AppState.FAILED)
        await until(lambda: exits)
        return exits[0].attempt

    # Attempt 2 of the app is attempt 2 of the application: it began as the first.
    assert run(yarn, second) == 2


@pytest.mark.parametrize("known", [3, 4])
@pytest.mark.parametrize("tagged", [True, False])
def test_attempts_by_yarn_during_downtime_are_counted(living, known, tagged):
    """The application began as attempt 3. The former ResourceManager may not know of its fourth attempt."""
    yarn = FakeYarn()

    async def first(launcher, exits):
        await launcher.launch(order(attempt=3))

    asyncio.run(submitted(yarn, first))
    (app,) = yarn.apps.values()
    tags = app.tags if tagged else app.tags - {"themis-attempt:3"}
    yarn.apps[app.yarn_app_id] = replace(app, attempt=2, tags=tags)

    async def second(launcher, exits):
        assert await launcher.adopt("app-1", known, 1)
        yarn.end(app.yarn_app_id, AppState.FAILED)
        await until(lambda: exits)
        return exits[0].attempt

    # An application of an older version has no tag of its attempt: the last known one counts.
    assert run(yarn, second) == (4 if tagged else known)


def test_ended_application_is_not_adopted(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.FINISHED)
        await until(lambda: exits)
        return await launcher.adopt("app-1", 1, 1)

    assert run(yarn, scenario) is False


def test_end_callback_may_launch_and_kill(living):
    yarn = FakeYarn()

    async def react(launcher, end):
        if end.attempt == 1:
            await launcher.launch(order(attempt=2))
            await launcher.kill("app-1")

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.FAILED)
        await until(lambda: len(exits) == 2)

    run(yarn, scenario, react)
    assert yarn.apps["application_17_0002"].state is AppState.KILLED


def test_slow_drain_does_not_delay_other_ends(living, monkeypatch):
    yarn = FakeYarn()
    stuck = {"application_17_0001"}
    answer = lambda _, app: NodesReply(living=("c1",) if app in stuck else ())  # noqa: E731
    monkeypatch.setattr(yarn_launcher, "living_containers", answer)

    async def scenario(launcher, exits):
        await launcher.launch(order())
        await launcher.launch(order("app-2"))
        yarn.end("application_17_0001", AppState.FAILED)
        yarn.end("application_17_0002", AppState.FAILED)
        await until(lambda: exits)
        stuck.clear()
        await until(lambda: len(exits) == 2)
        return [end.app_id for end in exits]

    assert run(yarn, scenario) == ["app-2", "app-1"]


def test_shutdown_waits_for_end_callback_and_kills_its_launch(living):
    yarn = FakeYarn()
    reported = asyncio.Event()

    async def react(launcher, end):
        reported.set()
        await asyncio.sleep(0.05)
        await launcher.launch(order(attempt=2))

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.FAILED)
        await reported.wait()

    run(yarn, scenario, react)
    assert yarn.apps["application_17_0002"].state is AppState.KILLED


def test_shutdown_continues_after_failed_kill(living, monkeypatch, caplog):
    yarn, launchers = FakeYarn(), []
    kill = yarn.kill

    def kill_others(yarn_app_id, reason):
        if yarn_app_id == "application_17_0001":
            raise UnreachableError("YARN is unavailable")
        kill(yarn_app_id, reason)

    monkeypatch.setattr(yarn, "kill", kill_others)

    async def scenario(launcher, exits):
        await launcher.launch(order())
        await launcher.launch(order("app-2"))
        launchers.append(launcher)

    with pytest.raises(UnreachableError, match=r"'app-1'$"):
        run(yarn, scenario)
    assert launchers[0]._following.done()
    assert yarn.apps["application_17_0002"].state is AppState.KILLED
    assert "app-1 may still run in YARN" in caplog.text


def test_shutdown_ends_applications_that_a_recovery_has_not_come_to(living):
    yarn = FakeYarn()

    async def former(launcher, exits):
        await launcher.launch(order())

    async def scenario(launcher, exits):
        yarn.submit(replace(yarn.submissions[0], tags=frozenset({"themis-run:other", "themis-app:app-1"})))

    asyncio.run(submitted(yarn, former))
    run(yarn, scenario)
    assert [app.state for app in yarn.apps.values()] == [AppState.KILLED, AppState.RUNNING]


def test_shutdown_says_that_yarn_does_not_list_what_may_live(living, monkeypatch):
    yarn = FakeYarn()

    def unavailable(**filters):
        raise UnreachableError("YARN is unavailable")

    async def scenario(launcher, exits):
        monkeypatch.setattr(yarn, "reports", unavailable)

    with pytest.raises(UnreachableError, match="those that YARN does not list"):
        run(yarn, scenario)


def test_shutdown_leaves_and_names_an_application_whose_end_yarn_does_not_report(living, monkeypatch):
    yarn = FakeYarn()
    monkeypatch.setattr(yarn_launcher, "STOP_LIMIT_S", 0.2)
    monkeypatch.setattr(yarn, "kill", lambda yarn_app_id, reason: None)

    async def scenario(launcher, exits):
        await launcher.launch(order())
        await launcher.launch(order("app-2"))
        yarn.end("application_17_0002", AppState.FINISHED)
        await until(lambda: exits)

    with pytest.raises(UnreachableError, match="not all applications could be killed in YARN: 'app-1'"):
        run(yarn, scenario)


class AnswersGetLost(FakeYarn):
    """Accepts a submission or not, and loses its first answer."""

    def __init__(self, takes=True):
        super().__init__()
        self.takes, self.lost = takes, False

    def submit(self, submission):
        if self.lost:
            return super().submit(submission)
        self.lost = True
        if self.takes:
            super().submit(submission)
        raise UnreachableError("no answer")


@pytest.mark.parametrize("takes", [True, False])
def test_lost_answer_does_not_submit_twice(living, takes):
    yarn = AnswersGetLost(takes)

    async def scenario(launcher, exits):
        with pytest.raises(UnreachableError):
            await launcher.launch(order(attempt=2))
        assert await launcher.launch(order(attempt=2)) == 1
        assert len(yarn.submissions) == 1
        yarn.end("application_17_0001", AppState.FAILED)
        await until(lambda: exits)
        return exits[0].attempt

    assert run(yarn, scenario) == 2


@pytest.mark.parametrize("end", ["kill", "shutdown"])
def test_application_with_lost_answer_is_killed(living, end):
    yarn = AnswersGetLost()

    async def scenario(launcher, exits):
        with pytest.raises(UnreachableError):
            await launcher.launch(order())
        if end == "kill":
            await launcher.kill("app-1")
            assert yarn.apps["application_17_0001"].state is AppState.KILLED

    run(yarn, scenario)
    assert yarn.apps["application_17_0001"].state is AppState.KILLED


def test_kill_during_launch_ends_application(living):
    yarn = FakeYarn()
    taken, answer = threading.Event(), threading.Event()
    submit = yarn.submit

    def submit_slowly(submission):
        yarn_app_id = submit(submission)
        taken.set()
        answer.wait(60)
        return yarn_app_id

    yarn.submit = submit_slowly
    living.extend([("c1",)] * 5)

    async def scenario(launcher, exits):
        launched = asyncio.create_task(launcher.launch(order()))
        await until(taken.is_set)
        killed = asyncio.create_task(launcher.kill("app-1"))
        await until(lambda: yarn.apps["application_17_0001"].state is AppState.KILLED)
        answer.set()
        assert await launched == 1
        await killed

    run(yarn, scenario)
