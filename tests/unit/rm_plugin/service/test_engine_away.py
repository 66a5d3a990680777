"""Deadlines of apps while the engine is unavailable: no lease, no silent app master, and no attempt counts."""

import asyncio
from types import SimpleNamespace

import pytest
from web_cases import RmCase

from rm_plugin.engines.inventory import FixedInventory, Node
from rm_plugin.engines.port import AmExit, EngineAttempts
from rm_plugin.service import nodes
from rm_plugin.service.attempt_losses import AttemptLosses
from rm_plugin.service.nodes import NodeWatch
from themis.answered_time import AnsweredTime
from themis.errors import UnreachableError
from themis.lifecycle import AppState, LeaseState


class Engine(FixedInventory):
    """Machines and a launcher in one, which can be unavailable."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.trouble = None
        self.killed, self.launched = [], []

    async def read(self):
        if isinstance(self.trouble, Exception):
            raise self.trouble
        if self.trouble:
            await self.trouble.wait()
        return await super().read()

    def waiting(self, app_id):
        return ""

    def queue(self, app_id):
        return ""

    async def launch(self, launch):
        self.launched.append(launch)
        return 1

    async def attempts(self, app_id, attempt):
        return EngineAttempts(newest=attempt)

    async def kill(self, app_id):
        self.killed.append(app_id)

    async def shutdown(self):
        pass


class Case(RmCase):
    """An app with a lease that has ended and is not given back yet."""

    def __init__(self, tmp_path):
        super().__init__(((2,), (2,)), folder=str(tmp_path))
        self.engine = Engine(self.arbiter.cluster)
        self.masters = self.manager.app_masters
        self.masters.launches._launcher = self.engine
        self.manager.rounds = SimpleNamespace(
            trigger=lambda why: None, lease_ends_moved=lambda: None, between_rounds=asyncio.Lock()
        )
        self.watch = NodeWatch(self.manager, self.engine, poll_s=1.0, absent_s=60.0)
        self.entry = self.running("one")
        self.entry.session = SimpleNamespace(close=lambda: None, send=lambda message: None)
        self.entry.registered_attempt = 1
        self.grant(**{self.entry.app_id.replace("-", "_"): {"m00": 1}})
        (lease,) = self.arbiter.table.of_app(self.entry.app_id)
        self.clock.advance_to(lease.expires_at_s)
        # The lease is not renewed on a closed GPU.
        self.arbiter.close_gpus(frozenset({lease.gpu}))
        self.arbiter.begin_round(self.clock.now_s())
        (lease,) = self.arbiter.table.of_app(self.entry.app_id)
        assert lease.state is LeaseState.EXPIRING
        self.heard()

    def heard(self):
        """The app master sends a message."""
        self.entry.last_seen_s = self.clock.now_s()

    async def pass_s(self, seconds):
        """Let this time pass in steps, with a look at the machines and a check of the apps in each."""
        for _ in range(int(seconds / 5.0)):
            self.clock.advance_to(self.clock.now_s() + 5.0)
            await self.watch.look()
            self.masters.check_apps()
            while self.masters._being_checked:
                await asyncio.sleep(0)


def run(scenario, tmp_path):
    async def whole():
        case = Case(tmp_path)
        try:
            await scenario(case)
        finally:
            await case.masters.close()

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_overdue_lease_is_taken_if_the_engine_answers(tmp_path):
    async def scenario(case):
        case.entry.last_seen_s = float("inf")
        await case.pass_s(case.manager.settings.lease.grace_s + 5.0)
        assert case.engine.killed == [case.entry.app_id]

    run(scenario, tmp_path)


def test_two_outages_of_the_engine_take_no_lease_and_count_no_attempt(tmp_path):
    async def scenario(case):
        for _ in range(2):
            case.engine.trouble = UnreachableError("YARN is unavailable")
            await case.pass_s(100.0)
            case.engine.trouble = None
            await case.pass_s(case.manager.settings.lease.grace_s - 10.0)
            assert case.engine.killed == []
            case.heard()
        assert case.entry.attempt == 1
        case.entry.last_seen_s = float("inf")
        await case.pass_s(case.manager.settings.lease.grace_s)
        assert case.engine.killed == [case.entry.app_id], "once it is back, deadlines pass again"

    run(scenario, tmp_path)


def test_deadlines_stand_still_until_the_returned_engine_mentions_every_machine(tmp_path):
    async def scenario(case):
        await case.watch.look()
        every, case.engine.nodes = case.engine.nodes, case.engine.nodes[:1]
        await case.pass_s(50.0)
        assert case.engine.killed == []
        case.engine.nodes = every
        case.heard()
        await case.pass_s(case.manager.settings.lease.grace_s - 10.0)
        assert case.engine.killed == []

    run(scenario, tmp_path)


def test_engine_that_keeps_silent_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "ANSWER_S", 0.0)

    async def scenario(case):
        case.engine.trouble = asyncio.Event()
        look = asyncio.ensure_future(case.watch.look())
        await asyncio.sleep(0.02)
        case.clock.advance_to(case.clock.now_s() + 300.0)
        case.masters.check_apps()
        await asyncio.sleep(0.02)
        assert case.engine.killed == []
        case.engine.trouble.set()
        await look

    run(scenario, tmp_path)


@pytest.mark.parametrize(("after_s", "state"), [(5.0, AppState.ACCEPTED), (120.0, AppState.FAILED)])
def test_attempt_lost_just_after_an_outage_does_not_count(tmp_path, after_s, state):
    async def scenario(case):
        case.entry.attempt_losses, case.entry.attempt = AttemptLosses(failed_at_s=(case.clock.now_s(),)), 2
        case.engine.trouble = UnreachableError("YARN is unavailable")
        await case.watch.look()
        case.engine.trouble = None
        await case.watch.look()
        case.clock.advance_to(case.clock.now_s() + after_s)
        await case.masters.am_exited(AmExit(app_id=case.entry.app_id, attempt=2, pid=1, exit_code=1))
        failures = len(case.entry.attempt_losses.failed_at_s)
        assert (case.entry.state, failures) == (state, 2 if state is AppState.FAILED else 1)

    run(scenario, tmp_path)


def test_unmentioned_machine_that_is_lost_no_longer_holds_deadlines(tmp_path):
    async def scenario(case):
        case.engine.nodes = tuple(Node(machine=each.machine) for each in case.engine.nodes[:1])
        case.entry.last_seen_s = float("inf")
        await case.pass_s(70.0)
        case.entry.last_seen_s = float("inf")
        await case.pass_s(case.manager.settings.lease.grace_s + 5.0)
        assert case.engine.killed == [case.entry.app_id]

    run(scenario, tmp_path)


def test_time_stands_still_during_silence():
    time = AnsweredTime(gap_s=2.0, now_s=10.0)
    time.answered(11.0)
    time.answered(12.5)
    assert (time.at(13.0), time.at(99.0)) == (13.0, 14.5)
    time.answered(112.5)
    assert time.at(113.0) == 15.0
