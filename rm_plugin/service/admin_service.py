"""AdminService: the gRPC methods for operators, behind the command `themis rm`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import grpc

import themis
from rm_plugin.service.authentication import caller
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.message_checks import check_reference
from rm_plugin.service.node_status import node_status, node_statuses
from rm_plugin.service.nodes import NodeWatch
from rm_plugin.service.refusals import refuse
from rm_plugin.service.store import StoreError
from themis.errors import ThemisError
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]

LOG = logging.getLogger("themis.rm")

_LOOK_S = 10.0
"""Seconds that a drain waits until the machine's GPUs are closed. An engine that is unavailable delays that."""


class AdminService(rpc.AdminServiceServicer):  # type: ignore[misc]
    """Answers operators.

    Args:
        manager: The ResourceManager.
        nodes: Applies drains.
        stop: Orders the process to stop; takes `keep_apps`.
        standbys: Returns the ResourceManagers that wait to take over.
    """

    def __init__(
        self,
        manager: ResourceManager,
        nodes: NodeWatch,
        stop: Callable[..., None],
        standbys: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        self._manager = manager
        self._nodes = nodes
        self._stop = stop
        self._standbys = standbys
        self._started_at_s = manager.clock.now_s()
        self._looks: set[asyncio.Task[None]] = set()

    async def Status(self, request: pb.RmStatusRequest, context: Context) -> pb.RmStatus:
        """Return the state of the ResourceManager and its machines."""
        manager = self._manager
        waiting = (AppState.SUBMITTED, AppState.ACCEPTED)
        is_away = manager.app_masters.watch.is_engine_away
        away = "the engine does not answer, or not about every machine" if is_away else ""
        return pb.RmStatus(
            version=themis.__version__,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at_s=self._started_at_s,
            now_s=manager.clock.now_s(),
            engine=manager.settings.engine,
            policy=manager.settings.policy,
            state_dir=str(manager.settings.state_dir.absolute()),
            store_trouble=manager.changes.trouble,
            engine_trouble=away,
            apps_running=manager.entries.count([AppState.RUNNING]),
            apps_waiting=manager.entries.count(waiting),
            limits=manager.live_cluster.limits,
            standbys=self._standbys(),
            nodes=node_statuses(manager),
            certificate_expires_at_s=manager.certificate_expires_at_s,
        )

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.RmStatus:
        """Stop this process soon after the answer."""
        try:
            caller().check_admin("stop the ResourceManager")
            detail = {"user": caller().user, "action": "stopped", "keep_apps": request.keep_apps}
            await self._manager.changes.make(lambda change: change.event("user_acted", detail=detail))
        except StoreError as error:
            # A ResourceManager that cannot write its store must be able to stop.
            LOG.warning("the stop by %s is not in the event log: %s", caller().user, error)
        except ThemisError as error:
            await refuse(context, error)
        status = await self.Status(pb.RmStatusRequest(), context)
        # The answer must be on its way before the server closes.
        asyncio.get_running_loop().call_later(0.1, lambda: self._stop(keep_apps=request.keep_apps))
        return status

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.NodeStatus:
        """Drain a machine, or open it again."""
        try:
            caller().check_admin("drain machines")
            machine_id = check_reference(request.machine_id, "machine")
            await self._manager.live_cluster.drain(machine_id, drained=request.drained, by=caller().user)
        except ThemisError as error:
            await refuse(context, error)
            raise
        look = asyncio.get_running_loop().create_task(self._nodes.look())
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)
        await asyncio.wait([look], timeout=_LOOK_S)
        return node_status(self._manager, self._manager.arbiter.cluster.machine(machine_id))

    async def Reload(self, request: pb.ReloadRequest, context: Context) -> pb.ReloadReply:
        """Read the file of queues again, and apply it."""
        try:
            caller().check_admin("reload the queues")
            queues = await self._manager.reload_queues(by=caller().user)
        except ThemisError as error:
            await refuse(context, error)
            raise
        return pb.ReloadReply(queues=len(queues.queues))

    async def AddUser(self, request: pb.AddUserRequest, context: Context) -> pb.AddUserReply:
        """Give a user of the network a token."""
        manager = self._manager
        try:
            caller().check_admin("add users")
            token = await manager.identities.add(
                manager.changes, request.user, valid_s=request.valid_s, by=caller().user
            )
        except ThemisError as error:
            await refuse(context, error)
            raise
        return pb.AddUserReply(token=token)

    async def ListUsers(self, request: pb.ListUsersRequest, context: Context) -> pb.ListUsersReply:
        """Return the users who have tokens."""
        try:
            caller().check_admin("list users")
        except ThemisError as error:
            await refuse(context, error)
        identities = self._manager.identities
        users = [
            pb.UserStatus(
                user=user,
                is_admin=(identity := identities.of_user(user)).is_admin,
                queues=sorted(identity.queues),
                created_at_s=token.created_at_s,
                expires_at_s=token.expires_at_s,
                created_by=token.created_by,
            )
            for user, token in sorted(identities.tokens.items())
        ]
        return pb.ListUsersReply(users=users)

    async def RevokeUser(self, request: pb.RevokeUserRequest, context: Context) -> pb.RevokeUserReply:
        """Make a user's token invalid."""
        try:
            caller().check_admin("revoke tokens")
            await self._manager.identities.revoke(self._manager.changes, request.user, by=caller().user)
        except ThemisError as error:
            await refuse(context, error)
            raise
        return pb.RevokeUserReply()
