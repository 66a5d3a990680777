"""The context of every verb: terminal, address, and pace of waiting."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable

from msgspec import field

from submarine_client.app_list import Selection, list_text, select, wide_text
from submarine_client.as_json import dump
from submarine_client.connection import Connection, Listing
from submarine_client.progress import progress_on
from submarine_client.terminal import PREFIX, Terminal
from submarine_client.wait import Pace, wait_for
from themis.apps import AppSpec
from themis.interruption import dealt_with
from themis.streams import write_stderr
from themis.values import Value
from themis.wire import themis_pb2 as pb
from themis.wire.app_document import listed_document
from themis.wire.app_status import has_ended, is_at_rest, is_paused, succeeded

OK = 0
APP_FAILED = 1


class Session(Value, frozen=True, kw_only=True):
    """A terminal, the ResourceManager's address, the file of trusted authorities if named, and the pace of waiting."""

    terminal: Terminal
    address: str
    ca: str | None = None
    pace: Pace = field(default_factory=Pace)

    def connect(self) -> Connection:
        """Return a connection, for use as a context manager."""
        return Connection(self.address, ca=self.ca)

    def submit(self, client: Connection, spec: AppSpec, *, wait: bool, notes: Iterable[str] = ()) -> int:
        """Submit an app, and wait for its end if `wait`. Returns the exit code.

        The app's id is alone on standard output; if it cannot be written, standard error names it. Notes on standard
        error say which device types of a mixed cluster can run the app, and where its page is.
        """
        reply = client.submission(spec)
        try:
            self.terminal.say(reply.app_id)
        except OSError:
            write_stderr(f"{PREFIX}{reply.app_id} is submitted, and goes on")
            raise
        if reply.runs_on:
            self.terminal.note(reply.runs_on)
        if reply.page_url:
            self.terminal.note(f"its page is {reply.page_url}")
        for note in notes:
            self.terminal.note(note)
        return self.wait(client, [reply.app_id]) if wait else OK

    def list_apps(self, selection: Selection, arguments: Namespace, *, what: str) -> int:
        """Print the selected apps; with `--watch` again and again, until Ctrl-C."""
        try:
            with self.connect() as client:
                while True:
                    found = select(client, selection, reasons=arguments.output in ("wide", "json"))
                    self._say_apps(found, arguments.output, what)
                    if not arguments.watch:
                        return OK
                    self.pace.sleep(arguments.watch)
                    self.terminal.clear()
        except KeyboardInterrupt:
            if not arguments.watch:
                raise
            dealt_with()
            return OK

    def _say_apps(self, found: Listing, output: str, what: str) -> None:
        apps = found.apps
        if output == "json":
            self.terminal.say(dump([listed_document(app) for app in apps]))
        elif not apps:
            self.terminal.note(f"no {what}")
        elif output == "name":
            self.terminal.say("\n".join(app.app_id for app in apps))
        elif output == "wide":
            self.terminal.show(wide_text(apps, self.terminal.width))
        else:
            self.terminal.show(list_text(apps, found.now_s, self.terminal.width))
        if found.more:
            self.terminal.note(f"and up to {found.more} more; --limit 0 lists all")

    def wait(self, client: Connection, app_ids: list[str]) -> int:
        """Wait for apps and show their progress. Returns OK if all finished well, else APP_FAILED."""
        progress = progress_on(self.terminal, self.pace.now_s)
        apps = wait_for(client, app_ids, progress, self.pace)
        return OK if all(map(succeeded, apps)) else APP_FAILED

    def wait_at_rest(self, client: Connection, app_ids: list[str]) -> None:
        """Wait until each app is paused or has ended, and print their states."""
        progress = progress_on(self.terminal, self.pace.now_s)
        for app in wait_for(client, app_ids, progress, self.pace, until=is_at_rest):
            # The progress names apps that have ended.
            if is_paused(app):
                self.terminal.show(f"{app.app_id} {app.state}")

    def write_logs(self, client: Connection, app_id: str, job_id: str, *, follow: bool, tail: int = 0) -> None:
        """Print the logs, or begin with the last `tail` lines of each. A line names the source at each change."""
        source, ends_line = "", True
        for chunk in client.logs(app_id, job_id, follow=follow, tail=tail):
            if chunk.source != source:
                source = chunk.source
                gap = "" if ends_line else "\n"
                self.terminal.write(f"{gap}==> {source} <==\n")
            self.terminal.write(chunk.text)
            ends_line = chunk.text.endswith("\n") if chunk.text else ends_line

    def kill(self, client: Connection, app: pb.AppStatus, reason: str) -> None:
        """Kill an app and print its state; an app that runs saves checkpoints before it ends."""
        after = client.kill(app.app_id, reason)
        self.terminal.show(f"{after.app_id} {after.state}" + ("" if has_ended(after) else ", asked to end"))
