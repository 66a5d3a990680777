"""The example files that ship with Themis: found by name, so that they can be used without a checkout.

`conf/` is package data. Wherever a command or a settings file takes a path to one of its files, it also takes the
file's name: `themis testbed run small` runs `conf/testbed/small.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from themis.errors import UnknownNameError


class ExampleKind(StrEnum):
    """What an example is; the value is its folder below `conf/`."""

    SETTINGS = "."
    CLUSTER = "clusters"
    APP = "apps"
    MIX = "testbed"
    MARKET = "markets"
    ALLOX_INSTANCE = "instances/allox"
    OEF_INSTANCE = "instances/oef"


def examples_folder() -> Path:
    """The installed folder of examples."""
    return Path(str(files("themis"))) / "conf"


def examples(kind: ExampleKind) -> Mapping[str, Path]:
    """The examples of a kind by name, sorted. A name is the file's name without its ending."""
    folder = examples_folder() / kind
    paths = (path for ending in ("yaml", "json") for path in folder.glob(f"*.{ending}"))
    return {path.stem: path for path in sorted(paths)}


def file_or_example(text: str | Path, kind: ExampleKind, folder: Path | None = None) -> Path:
    """Return the path that a user named: a file, or an example by its name.

    A relative path is relative to `folder`, by default to where the command runs. A file wins over an example. Only a
    bare name (no folder, no ending) can be an example's.

    Raises:
        UnknownNameError: A bare name is neither a file nor an example.
    """
    name, path = Path(text), (folder or Path()) / text
    if name.suffix or len(name.parts) != 1 or path.exists():
        return path
    known = examples(kind)
    if path.name not in known:
        raise UnknownNameError(f"file or example in {examples_folder().name}/{kind}", path.name, known)
    return known[path.name]
