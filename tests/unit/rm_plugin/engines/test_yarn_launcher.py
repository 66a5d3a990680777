"""App masters as YARN applications, by a fake of YARN's client."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from hadoop.values import AppReport, AppState, FinalStatus
from rm_plugin.engines import yarn_launcher
from rm_plugin.engines.port import AmExit, AmLaunch
from rm_plugin.engines.yarn_launcher import AmTemplate, YarnAppLauncher
from themis.config.rm_settings import YarnSettings

TEMPLATE = AmTemplate(
    python="py", environment={"A": "1", "THEMIS_APP_DIR": "theirs"}, templates={"PYTHONPATH": "{{PWD}}/x"},
    resources=(), storage_of=lambda app_id: f"hdfs:///s/{app_id}",
)  # fmt: skip


class FakeYarn:
    """Applications in memory."""

    def __init__(self):
        self.apps = {}
        self.submissions = []

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

    def kill(self, yarn_app_id, reason):
        self.end(yarn_app_id, AppState.KILLED, diagnostics=reason)

    def end(self, yarn_app_id, state, **changes):
        self.apps[yarn_app_id] = replace(self.apps[yarn_app_id], state=state, **changes)


@pytest.fixture
def living(monkeypatch):
    """Containers that NodeManagers say still run, one answer after the other."""
    answers = []
    monkeypatch.setattr(yarn_launcher, "living_containers", lambda *_: answers.pop(0) if answers else ())
    monkeypatch.setattr(yarn_launcher, "submission_tokens", lambda: b"")
    monkeypatch.setattr(yarn_launcher, "_DRAIN_POLL_S", 0.01)
    return answers


def order(app_id="app-1", attempt=1, **more):
    values = {"environment": {"THEMIS_APP_DIR": "/here", "B": "2"}, "working_dir": Path("/here"), **more}
    return AmLaunch(app_id=app_id, attempt=attempt, **values)


def run(yarn, scenario, **settings):
    async def whole():
        exits = []

        async def on_exit(end):
            exits.append(end)

        launcher = YarnAppLauncher(
            yarn, "run7", on_exit, template=TEMPLATE, settings=YarnSettings(poll_s=0.01, **settings),
            node_addresses=lambda app_id: ("n1:8042",),
        )  # fmt: skip
        try:
            return await scenario(launcher, exits)
        finally:
            await launcher.shutdown()

    return asyncio.run(asyncio.wait_for(whole(), 10))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_what_is_submitted(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        return await launcher.launch(order(name="mine", user="ada", queue="research", attempts_left=2))

    assert run(yarn, scenario) == 1
    (submission,) = yarn.submissions
    assert (submission.name, submission.queue, submission.max_attempts) == ("mine", "research", 2)
    assert submission.keep_containers and submission.user == ""
    assert submission.tags == {"themis-run:run7", "themis-app:app-1", "themis-attempt:1", "user:ada"}
    assert submission.launch.environment == {
        "A": "1", "B": "2", "THEMIS_APP_DIR": "app", "THEMIS_APP_ID": "app-1", "THEMIS_ATTEMPT": "1",
        "THEMIS_STORAGE_URI": "hdfs:///s/app-1",
    }  # fmt: skip
    assert submission.launch.environment_templates == {"PYTHONPATH": "{{PWD}}/x"}


def test_the_settings_queue_goes_before_the_apps_and_it_may_belong_to_its_user(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order(user="ada", queue="research"))

    run(yarn, scenario, queue="themis", as_submitter=True)
    assert (yarn.submissions[0].queue, yarn.submissions[0].user) == ("themis", "ada")


def test_an_end_is_told_once_with_the_attempts_that_yarn_made_after_its_containers_are_gone(living):
    yarn = FakeYarn()
    living.extend([("c1",), ("c1",)])

    async def scenario(launcher, exits):
        await launcher.launch(order(attempt=3))
        yarn.end("application_17_0001", AppState.FAILED, attempt=2)
        await until(lambda: exits)
        assert living == []
        await asyncio.sleep(0.05)
        return exits

    assert run(yarn, scenario) == [AmExit(app_id="app-1", attempt=4, pid=1, exit_code=1)]


def test_yarn_is_not_asked_for_what_is_over(living):
    yarn = FakeYarn()
    asked = []
    reports = yarn.reports
    yarn.reports = lambda *, tags: asked.append(tags) or reports(tags=tags)

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.FINISHED)
        await until(lambda: exits)
        asked.clear()
        await asyncio.sleep(0.05)
        assert asked == []
        await launcher.launch(order(app_id="app-2"))
        await until(lambda: asked)

    run(yarn, scenario)
    assert set(asked) == {("themis-app:app-2",)}


def test_an_operators_kill_is_told_as_such(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.KILLED, diagnostics=" killed by ada\n")
        await until(lambda: exits)
        return exits[0].killed

    assert run(yarn, scenario) == "killed by ada"


def test_kill_returns_when_no_node_runs_anything_of_it(living):
    yarn = FakeYarn()
    living.extend([("c1",), ("c1",)])

    async def scenario(launcher, exits):
        await launcher.launch(order())
        await launcher.kill("app-1")
        assert living == []
        await launcher.kill("app-1")
        await launcher.kill("unknown")

    run(yarn, scenario)


def test_another_launch_ends_the_one_before(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order())
        assert await launcher.launch(order(attempt=2)) == 2

    run(yarn, scenario)
    assert yarn.apps["application_17_0001"].state is AppState.KILLED


def test_an_application_of_this_run_is_adopted_and_others_are_not(living):
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
def test_attempts_that_yarn_made_while_nobody_looked_are_counted(living, known, tagged):
    """The application began as attempt 3; that its fourth runs the former ResourceManager may not have seen."""
    yarn = FakeYarn()

    async def first(launcher, exits):
        await launcher.launch(order(attempt=3))
        launcher._apps.clear()

    run(yarn, first)
    (app,) = yarn.apps.values()
    tags = app.tags if tagged else app.tags - {"themis-attempt:3"}
    yarn.apps[app.yarn_app_id] = replace(app, attempt=2, tags=tags)

    async def second(launcher, exits):
        assert await launcher.adopt("app-1", known, 1)
        yarn.end(app.yarn_app_id, AppState.FAILED)
        await until(lambda: exits)
        return exits[0].attempt

    # What an older version submitted tells nothing but the attempt that was last heard of.
    assert run(yarn, second) == (4 if tagged else known)


def test_one_that_is_over_is_not_adopted(living):
    yarn = FakeYarn()

    async def scenario(launcher, exits):
        await launcher.launch(order())
        yarn.end("application_17_0001", AppState.FINISHED)
        await until(lambda: exits)
        return await launcher.adopt("app-1", 1, 1)

    assert run(yarn, scenario) is False
