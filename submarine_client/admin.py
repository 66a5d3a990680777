"""Operators' calls of a ResourceManager: blocking calls of AdminService."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from submarine_client.link import Link
from themis.errors import UnreachableError
from themis.wire import themis_pb2 as pb
from themis.wire.themis_pb2_grpc import AdminServiceStub

_TIMEOUT_S = 30.0
_LOOK_S = 0.2


class Admin:
    """A connection to one ResourceManager; a context manager.

    Every call raises UnreachableError if the ResourceManager does not answer.

    Args:
        address: HOST:PORT of the ResourceManager, or several with commas between.
        ca: The file of the authorities to trust; None: see `Credentials`.
    """

    def __init__(self, address: str, *, ca: str | None = None) -> None:
        self._link = Link(address, AdminServiceStub, ca=ca)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._link.close()

    def status(self) -> pb.RmStatus:
        """Return the state of the ResourceManager and its machines."""
        status: pb.RmStatus = self._call(self._stub.Status, pb.RmStatusRequest())
        return status

    def stop(self, *, keep_apps: bool) -> pb.RmStatus:
        """Order the ResourceManager to stop. Returns its last state, before its end."""
        status: pb.RmStatus = self._call(self._stub.Stop, pb.StopRequest(keep_apps=keep_apps))
        return status

    def wait_until_gone(
        self, process: pb.RmStatus, limit_s: float, *, now_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> bool:
        """Wait until a ResourceManager does not answer any more, or its standby answers.

        Returns False if it still answers after `limit_s`.
        """
        deadline_s = now_s() + limit_s
        while now_s() < deadline_s:
            sleep(_LOOK_S)
            try:
                status = self.status()
                if (status.host, status.pid) != (process.host, process.pid):
                    return True
            except UnreachableError:
                return True
        return False

    def drain(self, machine_id: str, *, drained: bool) -> pb.NodeStatus:
        """Drain a machine, or open it again. Raises NotFoundError for an unknown one."""
        request = pb.DrainRequest(machine_id=machine_id, drained=drained)
        status: pb.NodeStatus = self._call(self._stub.Drain, request)
        return status

    def reload(self) -> int:
        """Order the ResourceManager to read its file of queues again. Returns the number of queues."""
        queues: int = self._call(self._stub.Reload, pb.ReloadRequest()).queues
        return queues

    def add_user(self, user: str, *, valid_s: float) -> str:
        """Give a user a token, and return it."""
        token: str = self._call(self._stub.AddUser, pb.AddUserRequest(user=user, valid_s=valid_s)).token
        return token

    def users(self) -> Sequence[pb.UserStatus]:
        """Return the users who have tokens."""
        users: Sequence[pb.UserStatus] = self._call(self._stub.ListUsers, pb.ListUsersRequest()).users
        return users

    def revoke_user(self, user: str) -> None:
        """Make a user's token invalid. Raises NotFoundError if the user has none."""
        self._call(self._stub.RevokeUser, pb.RevokeUserRequest(user=user))

    def _call(self, method: Any, request: Any) -> Any:
        with self._link.translated():
            return self._link.call(lambda metadata: method(request, timeout=_TIMEOUT_S, metadata=metadata))

    @property
    def _stub(self) -> AdminServiceStub:
        return self._link.stub
