"""Read a group file into an app that is ready to be submitted."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from submarine_client.programs import typed_program
from themis.apps import AppSpec
from themis.checkpoint_uri import check_checkpoint_uri
from themis.config.examples import ExampleKind, file_or_example
from themis.config.group_file import AppDraft, draft_group
from themis.errors import FoundErrors, InputError


def load_app(file: str | Path) -> AppSpec:
    """Read a group file, or an example by its name, and check it, including its program and parameters.

    Raises:
        InputError: All errors of the file that do not depend on each other.
    """
    path, found = file_or_example(file, ExampleKind.APP), FoundErrors()
    draft = draft_group(path, found)
    typed = found.run(typed_program, draft, str(path), found.run(lambda: draft.searched) or ()) or {}
    uri = found.run(_checkpoint_uri, draft, str(path))
    return replace(draft.app(), checkpoint_uri=uri, **typed)


def _checkpoint_uri(draft: AppDraft, source: str) -> str:
    """Where checkpoints lie. A relative folder is relative to where the command runs, not to the tasks."""
    uri = draft.file.checkpoint_uri
    absolute = uri if not uri or "://" in uri else str(Path(uri).absolute())
    try:
        check_checkpoint_uri(absolute)
    except InputError as error:
        raise InputError(f"{source}: {error.what}", value=error.value, remedy=error.remedy) from None
    return absolute
