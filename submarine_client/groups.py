"""From a group file to an app that is ready to be submitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from submarine_client.programs import check_program
from themis.apps import AppSpec
from themis.config.group_file import load_group


def load_app(path: Path) -> AppSpec:
    """Read a group file and check all of it, its program and parameters included; raises InputError."""
    return _absolute(check_program(load_group(path), str(path)))


def _absolute(spec: AppSpec) -> AppSpec:
    """A relative checkpoint folder is meant from where the command runs; elsewhere it would be another folder."""
    if not spec.checkpoint_uri or "://" in spec.checkpoint_uri:
        return spec
    return replace(spec, checkpoint_uri=str(Path(spec.checkpoint_uri).absolute()))
