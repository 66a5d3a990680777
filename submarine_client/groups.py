"""Read a group file into an app that is ready to be submitted."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from submarine_client.programs import check_program
from themis.apps import AppSpec
from themis.checkpoint_uri import check_checkpoint_uri
from themis.config.examples import ExampleKind, file_or_example
from themis.config.group_file import load_group
from themis.errors import InputError


def load_app(file: str | Path) -> AppSpec:
    """Read a group file, or an example by its name, and check it, including its program and parameters.

    Raises:
        InputError: A part of the file is invalid.
    """
    path = file_or_example(file, ExampleKind.APP)
    app = _absolute(check_program(load_group(path), str(path)))
    try:
        check_checkpoint_uri(app.checkpoint_uri)
    except InputError as error:
        raise InputError(f"{path}: {error.what}", value=error.value, remedy=error.remedy) from None
    return app


def _absolute(spec: AppSpec) -> AppSpec:
    """Make a relative checkpoint folder absolute: it is relative to where the command runs, not to the tasks."""
    if not spec.checkpoint_uri or "://" in spec.checkpoint_uri:
        return spec
    return replace(spec, checkpoint_uri=str(Path(spec.checkpoint_uri).absolute()))
