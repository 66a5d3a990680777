"""Connect the tasks of a replay job: the chief listens on its address, and the others connect to it.

This replaces the collectives of a real job: all tasks start together, a stop of one stops all, and the death of one
fails all. No method waits, except where it says so; callers poll. The messages, by their key `say`:

- `hello`, from a task, with the job, the incarnation and its index: the first message of every connection.
- `welcome`, from the chief: the task is accepted. `refused`, with the reason `why`: the task is of another job or
  incarnation, or unknown.
- `stop`, from a task: it was asked to stop, so the job should stop.
- `died`, from the chief, with the index of the `task` that disconnected.
- `end`, from the chief, with the job's exit `code`. A task that disconnects before the end counts as dead.
"""

from __future__ import annotations

import select
import socket
import struct
import time

from tf_jobs.addresses import Address
from tf_jobs.channel import Channel, Message
from tf_jobs.context import TaskContext
from themis.errors import ThemisError

CONNECT_LIMIT_S = 1.0
END_LIMIT_S = 2.0
NO_LINGER = struct.pack("ii", 1, 0)


class Chief:
    """The chief's side, for a job of two tasks or more.

    Args:
        context: The chief's context.

    Attributes:
        stop_asked: Whether a task has asked to stop.
        dead: Index of the first task that has died, or None.

    Raises:
        ThemisError: It cannot listen on its address.
    """

    def __init__(self, context: TaskContext) -> None:
        self.stop_asked = False
        self.dead: int | None = None
        self._context = context
        self._listener: socket.socket | None = listen(context.addresses[0])
        self._strangers: list[Channel] = []
        self._tasks: dict[int, Channel] = {}

    def missing(self) -> list[int]:
        """The tasks that have not connected yet."""
        return [index for index in range(1, self._context.tasks) if index not in self._tasks]

    def poll(self) -> None:
        """Process new connections, messages and deaths."""
        self._admit()
        for index, task in self._tasks.items():
            self._hear(index, task)

    def publish_end(self, code: int) -> None:
        """Send the job's exit code to the others, and wait up to END_LIMIT_S seconds until they have received it."""
        self._admit()
        for task in self._tasks.values():
            task.send({"say": "end", "code": code})
        deadline_s = time.monotonic() + END_LIMIT_S
        while (left_s := deadline_s - time.monotonic()) > 0.0:
            # Keep reading: closing a socket with unread messages would drop the messages sent.
            for task in self._tasks.values():
                while task.next() is not None:
                    pass
            open_still = [task for task in self._tasks.values() if not task.closed]
            if not open_still:
                break
            select.select(open_still, [], [], left_s)

    def close(self) -> None:
        """Close all connections."""
        self._stop_listening()
        for task in self._tasks.values():
            task.close()

    def _admit(self) -> None:
        """Accept new connections, until all tasks are connected."""
        if self._listener is None:
            return
        self._accept(self._listener)
        for stranger in list(self._strangers):
            self._identify(stranger)
        if not self.missing():
            self._stop_listening()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                # No connection is waiting, or the peer has closed it again.
                return
            self._strangers.append(Channel(connected))

    def _identify(self, stranger: Channel) -> None:
        """Accept a task by its first message, or close the connection."""
        message = stranger.next()
        if message is None and not stranger.closed:
            return
        self._strangers.remove(stranger)
        index = self._index_in(message or {})
        if index is not None and index not in self._tasks:
            self._tasks[index] = stranger
            stranger.send({"say": "welcome"})
            return
        mine = f"{self._context.job_id!r} of {self._context.app_id!r}, incarnation {self._context.incarnation}"
        why = f"the chief there is of job {mine}" if index is None else "this task is there already"
        stranger.send({"say": "refused", "why": why})
        stranger.close()

    def _index_in(self, message: Message) -> int | None:
        """Return the index of the task that says hello, or None if it is not of this incarnation."""
        index = message.get("task")
        if isinstance(index, int) and 0 < index < self._context.tasks and message == hello(self._context, index):
            return index
        return None

    def _hear(self, index: int, task: Channel) -> None:
        """Process a task's messages, and notice its death."""
        while (message := task.next()) is not None:
            self.stop_asked = self.stop_asked or message.get("say") == "stop"
        if task.closed and self.dead is None:
            self.dead = index
            for other in self._tasks.values():
                other.send({"say": "died", "task": index})

    def _stop_listening(self) -> None:
        """Close the port: all tasks are connected, or the job is over."""
        for stranger in self._strangers:
            stranger.close()
        self._strangers.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None


class Follower:
    """The side of a task that is not the chief.

    Args:
        context: This task's context.

    Attributes:
        joined: Whether the chief has accepted this task.
        dead: Index of a task that has died, or None. The chief's index if the connection broke.
        end_code: The job's exit code, once the chief has sent it.
        trouble: Why the last attempt to reach the chief failed.
    """

    def __init__(self, context: TaskContext) -> None:
        self.joined = False
        self.dead: int | None = None
        self.end_code: int | None = None
        self.trouble = "not tried yet"
        self._context = context
        self._refusal = ""
        self._stop_asked = False
        self._channel: Channel | None = None

    def poll(self) -> None:
        """Connect if not connected yet, and process the chief's messages."""
        if self._channel is None:
            self._channel = self._connect()
        if self._channel is None:
            return
        while (message := self._channel.next()) is not None:
            self._take(message)
        if not self._channel.closed:
            return
        if not self.joined:
            self._channel.close()
            self._channel = None
        elif self.dead is None and self.end_code is None:
            self.dead = 0

    def ask_stop(self) -> None:
        """Ask the chief to stop the job after a checkpoint."""
        if not self._stop_asked and self._channel is not None:
            self._channel.send({"say": "stop"})
        self._stop_asked = True

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()

    def _connect(self) -> Channel | None:
        """Return a connection on which this task has said hello, or None if the chief does not listen yet."""
        try:
            connected = connect(self._context.addresses[0])
        except OSError as error:
            self.trouble = str(error)
            return None
        channel = Channel(connected)
        self.trouble = self._refusal or "the process that listens there did not answer as a chief does"
        channel.send(hello(self._context, self._context.task_index))
        if self._stop_asked:
            channel.send({"say": "stop"})
        return channel

    def _take(self, message: Message) -> None:
        match message:
            case {"say": "welcome"}:
                self.joined = True
            case {"say": "refused", "why": str(why)}:
                self._refusal = self.trouble = why
            case {"say": "died", "task": int(task)} if self.joined:
                self.dead = task
            case {"say": "end", "code": int(code)} if self.joined:
                self.end_code = code


def hello(context: TaskContext, task_index: int) -> Message:
    """Return a task's hello message."""
    return {
        "say": "hello",
        "app": context.app_id,
        "job": context.job_id,
        "incarnation": context.incarnation,
        "task": task_index,
    }


def listen(address: Address) -> socket.socket:
    """Return a listening socket: on a loopback address only for this machine, else on the port of all interfaces.

    All interfaces, because a machine may lack the address by which others reach it, as in a container.

    Raises:
        ThemisError: The port is taken, or the address is not this machine's.
    """
    try:
        if address.loopback:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            listener = socket.create_server((address.host, address.port), family=family)
        elif socket.has_dualstack_ipv6():
            listener = socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            listener = socket.create_server(("", address.port))
    except OSError as error:
        raise ThemisError("the chief cannot listen to its peers", value=str(address), remedy=str(error)) from error
    listener.setblocking(False)
    return listener


def connect(address: Address) -> socket.socket:
    """Connect to `address`. Raises OSError if no process listens there, or it does not answer in time."""
    connected = socket.create_connection((address.host, address.port), CONNECT_LIMIT_S)
    if connected.getsockname() == connected.getpeername():
        # No process listens, and the kernel chose the same port for this end: TCP then connects a socket to itself.
        # Close it without the usual minute of lingering, which would keep the port from the chief.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        connected.close()
        raise ConnectionRefusedError("no process listens there yet")
    return connected
