"""The context of every verb: terminal, address, and pace of waiting."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from submarine_client.as_json import app_object, dump
from submarine_client.client import Client
from submarine_client.progress import progress_on
from submarine_client.show import list_text
from submarine_client.status import succeeded
from submarine_client.terminal import PREFIX, Terminal
from submarine_client.wait import Pace, wait_for
from themis.streams import write_stderr
from themis.values import Value
from themis.wire import themis_pb2 as pb

OK = 0
APP_FAILED = 1


class Session(Value, frozen=True, kw_only=True):
    """A terminal, the ResourceManager's address, and the pace of waiting."""

    terminal: Terminal
    address: str
    pace: Pace = field(default_factory=Pace)

    def connect(self) -> Client:
        """Return a connection, for use as a context manager."""
        return Client(self.address)

    def say_submitted(self, reply: pb.SubmitReply) -> None:
        """Print the id of a submitted app, alone on standard output. If that fails, name it on standard error.

        On a cluster of several device types, a note says which of them can run the app.
        """
        try:
            self.terminal.say(reply.app_id)
        except OSError:
            write_stderr(f"{PREFIX}{reply.app_id} is submitted, and goes on")
            raise
        if reply.runs_on:
            self.terminal.note(reply.runs_on)

    def say_apps(self, apps: Sequence[pb.AppStatus], more: int, *, as_json: bool, what: str) -> None:
        """Print a list of apps, and note that there are more."""
        if as_json:
            self.terminal.say(dump([app_object(app) for app in apps]))
        elif apps:
            self.terminal.say(list_text(apps))
        else:
            self.terminal.note(f"no {what}")
        if more:
            self.terminal.note(f"and up to {more} more; --limit 0 lists all")

    def wait(self, client: Client, app_ids: list[str]) -> int:
        """Wait for apps and show their progress. Returns OK if all finished well, else APP_FAILED."""
        progress = progress_on(self.terminal, self.pace.now_s)
        apps = wait_for(client, app_ids, progress, self.pace)
        return OK if all(map(succeeded, apps)) else APP_FAILED

    def write_logs(self, client: Client, app_id: str, job_id: str, *, follow: bool) -> None:
        """Print the logs. If several sources alternate, a line names the source at each change."""
        source, ends_line = "", True
        for chunk in client.logs(app_id, job_id, follow=follow):
            if chunk.source != source:
                source = chunk.source
                gap = "" if ends_line else "\n"
                self.terminal.write(f"{gap}==> {source} <==\n")
            self.terminal.write(chunk.text)
            ends_line = chunk.text.endswith("\n") if chunk.text else ends_line

    def kill(self, client: Client, app: pb.AppStatus, reason: str) -> None:
        """Kill an app and print its state."""
        after = client.kill(app.app_id, reason)
        self.terminal.say(f"{after.app_id} {after.state}")
