"""`themis examples`: list or copy the example files, which commands find by name."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from themis.config.examples import ExampleKind, examples, examples_folder
from themis.errors import InputError
from themis_cli.parsers import Subcommands

_USES = {
    ExampleKind.APP: "submarine app submit NAME",
    ExampleKind.CLUSTER: "cluster: NAME in settings; themis simulate --cluster NAME",
    ExampleKind.MARKET: "themis auction --market NAME",
    ExampleKind.MIX: "themis testbed run NAME",
    ExampleKind.ALLOX_INSTANCE: "themis allox --instance NAME",
    ExampleKind.OEF_INSTANCE: "themis oef --instance NAME",
    ExampleKind.SETTINGS: "themis rm start -c NAME",
}


def add_to(commands: Subcommands) -> None:
    """Add `examples`."""
    parser = commands.add_parser("examples", help="list the example files, or copy them to edit")
    parser.add_argument("--copy", type=Path, metavar="DIR", help="copy all of them into a new folder")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.copy is not None:
        return _copy(options.copy)
    for kind, use in _USES.items():
        sys.stdout.write(f"{use}\n")
        for name, path in examples(kind).items():
            sys.stdout.write(f"  {name:20}{_summary(path)}".rstrip() + "\n")
    return 0


def _copy(folder: Path) -> int:
    try:
        shutil.copytree(examples_folder(), folder)
    except FileExistsError:
        raise InputError("the folder exists already", value=str(folder), remedy="name a new one") from None
    sys.stdout.write(f"{folder}\n")
    return 0


def _summary(path: Path) -> str:
    """The first clause of the comment at the start of a file. Empty for a file without one."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    if not first.startswith("#"):
        return ""
    return re.split(r"[:;] |\. |\.$", first.removeprefix("#").strip())[0]
