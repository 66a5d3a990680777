"""Make an app that goes on from the checkpoints of one that failed or was killed."""

from __future__ import annotations

from msgspec.structs import replace

from themis.apps import AppSpec
from themis.errors import InputError
from themis.wire import app_status as status
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message


def spec_of(app: pb.AppStatus) -> AppSpec:
    """Return the specification of an app. Raises InputError if the app is another user's, who alone sees it."""
    if not app.HasField("spec"):
        raise InputError(f"app {app.app_id} is not yours", remedy=f"{app.user} and administrators see what it runs")
    return app_from_message(app.spec)


def resumed(app: pb.AppStatus) -> AppSpec:
    """Return the specification of an app, with the checkpoints of this one.

    The search begins again. Each job starts from its newest checkpoint; a job that had reached its target ends at once.

    Raises:
        InputError: The app is another user's, has not ended, has finished, or never said where its checkpoints are.
    """
    spec = spec_of(app)
    if not status.has_ended(app):
        remedy = f"it goes on by itself; `submarine app pause {app.app_id}` pauses it"
        raise InputError(f"app {app.app_id} has not ended", value=app.state, remedy=remedy)
    if status.succeeded(app):
        remedy = "submit its group file again for another search"
        raise InputError(f"app {app.app_id} has finished", value=app.state, remedy=remedy)
    if not app.checkpoint_uri:
        remedy = "it ended before its app master reported; submit its group file again"
        raise InputError(f"the checkpoints of app {app.app_id} are not known", remedy=remedy)
    return replace(spec, checkpoint_uri=app.checkpoint_uri)
