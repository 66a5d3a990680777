"""What the ResourceManager answers operators, and that it stops as they order."""

import asyncio
import os

import pytest
from service_cases import app

import themis
from rm_plugin.engines.inventory import FixedInventory
from rm_plugin.service.admin_service import AdminService
from rm_plugin.service.authentication import set_caller
from rm_plugin.service.memory_service import memory_service, until
from rm_plugin.service.nodes import NodeWatch
from themis.identity import Identity
from themis.wire import themis_pb2 as pb


def run(tmp_path, scenario):
    """Run a scenario with the service, what operators call, and the orders to stop that it passed on."""

    async def whole():
        async with memory_service(tmp_path) as rm:
            set_caller(Identity(user="root", is_admin=True))
            stops = []
            watch = NodeWatch(rm.manager, FixedInventory(rm.arbiter.cluster), poll_s=1.0)
            admin = AdminService(rm.manager, watch, lambda **named: stops.append(named), lambda: ["second"])
            await scenario(rm, admin, stops)

    asyncio.run(asyncio.wait_for(whole(), 20))


def test_status_has_the_apps_the_machines_and_the_troubles(tmp_path):
    async def scenario(rm, admin, _stops):
        started_at_s = rm.clock.now_s()
        await rm.registered(app("runs"))
        for name in ("starts", "starts-too"):
            await rm.manager.submit(app(name))
        rm.clock.advance_to(started_at_s + 5.0)
        rm.manager.live_cluster.limits = ("the queue is full",)
        status = await admin.Status(pb.RmStatusRequest(), None)
        assert (status.version, status.pid, status.policy, status.engine) == (
            themis.__version__, os.getpid(), "srtf", rm.settings.engine,
        )  # fmt: skip
        assert (status.started_at_s, status.now_s, status.state_dir) == (
            started_at_s, started_at_s + 5.0, str(tmp_path),
        )  # fmt: skip
        assert (status.apps_running, status.apps_waiting) == (1, 2)
        assert (status.limits, status.standbys) == (["the queue is full"], ["second"])
        assert [(node.machine_id, node.state) for node in status.nodes] == [("m0", "usable")]
        assert (status.store_trouble, status.engine_trouble) == ("", "")
        rm.manager.app_masters.watch.engine_is_away(True)
        status = await admin.Status(pb.RmStatusRequest(), None)
        assert status.engine_trouble.startswith("the engine does not answer")

    run(tmp_path, scenario)


@pytest.mark.parametrize("keep_apps", [True, False])
def test_order_to_stop_is_written_answered_and_then_obeyed(tmp_path, keep_apps):
    async def scenario(rm, admin, stops):
        answer = await admin.Stop(pb.StopRequest(keep_apps=keep_apps), None)
        assert (answer.pid, stops) == (os.getpid(), [])
        (event,) = rm.store.events()
        assert (event.kind, event.detail) == (
            "user_acted", {"user": "root", "action": "stopped", "keep_apps": keep_apps},
        )  # fmt: skip
        await until(lambda: stops == [{"keep_apps": keep_apps}])

    run(tmp_path, scenario)


def test_service_that_cannot_write_its_store_stops_too(tmp_path):
    async def scenario(rm, admin, stops):
        rm.store.trouble = "disk full"
        await admin.Stop(pb.StopRequest(), None)
        await until(lambda: stops == [{"keep_apps": False}])

    run(tmp_path, scenario)


def test_users_are_listed_with_who_gave_them_a_token_and_until_when(tmp_path):
    async def scenario(rm, admin, _stops):
        await admin.AddUser(pb.AddUserRequest(user="ann", valid_s=100.0), None)
        (user,) = (await admin.ListUsers(pb.ListUsersRequest(), None)).users
        now_s = rm.clock.now_s()
        assert (user.user, user.is_admin, list(user.queues)) == ("ann", False, [])
        assert (user.created_by, user.created_at_s, user.expires_at_s) == ("root", now_s, now_s + 100.0)

    run(tmp_path, scenario)
