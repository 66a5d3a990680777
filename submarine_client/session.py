"""What every verb of the command works with."""

from __future__ import annotations

from dataclasses import dataclass, field

from submarine_client.client import Client
from submarine_client.progress import progress_on
from submarine_client.status import succeeded
from submarine_client.terminal import PREFIX, Terminal
from submarine_client.wait import Pace, wait_for
from themis.streams import write_stderr
from themis.wire import themis_pb2 as pb

OK = 0
APP_FAILED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A terminal, the ResourceManager's address, and the pace of waiting."""

    terminal: Terminal
    address: str
    pace: Pace = field(default_factory=Pace)

    def connect(self) -> Client:
        """A connection, to be closed by its context."""
        return Client(self.address)

    def say_submitted(self, app_id: str) -> None:
        """Write the id of an app that was submitted: alone on standard output, or who it is where that fails."""
        try:
            self.terminal.say(app_id)
        except OSError:
            write_stderr(f"{PREFIX}{app_id} is submitted, and goes on")
            raise

    def wait(self, client: Client, app_ids: list[str]) -> int:
        """Wait for apps with progress; the exit code says whether all of them ended well."""
        progress = progress_on(self.terminal, self.pace.now_s)
        apps = wait_for(client, app_ids, progress, self.pace)
        return OK if all(map(succeeded, apps)) else APP_FAILED

    def write_logs(self, client: Client, app_id: str, job_id: str, *, follow: bool) -> None:
        """Write the logs; where several sources take turns, each turn begins with a line that names its source."""
        source, ends_line = "", True
        for chunk in client.logs(app_id, job_id, follow=follow):
            if chunk.source != source:
                source = chunk.source
                gap = "" if ends_line else "\n"
                self.terminal.write(f"{gap}==> {source} <==\n")
            self.terminal.write(chunk.text)
            ends_line = chunk.text.endswith("\n") if chunk.text else ends_line

    def kill(self, client: Client, app: pb.AppStatus, reason: str) -> None:
        """End an app and say how it stands."""
        after = client.kill(app.app_id, reason)
        self.terminal.say(f"{after.app_id} {after.state}")
