"""`themis replay`: run a recorded run's arrivals under another policy or with other settings."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from themis.errors import InputError
from themis.values import Value
from themis_cli.parsers import Subcommands
from themis_cli.simulate_options import add_choices, check_ranges, chosen_lies, chosen_settings

if TYPE_CHECKING:
    from themis_lab.simulator.metrics import Document
    from themis_lab.simulator.runs import Run


class Recorded(Value, frozen=True, kw_only=True):
    """A recorded run: its input, and the known part of its document."""

    run: Run
    document: Document


def add_to(commands: Subcommands) -> None:
    """Add `replay`."""
    parser = commands.add_parser("replay", help="run a recorded run's arrivals under another policy")
    add = parser.add_argument
    add(
        "recording", type=Path, metavar="FILE", help="recording by themis simulate --record, or folder of a testbed run"
    )
    add(
        "--policy",
        action="append",
        metavar="NAME",
        help="policy to run; repeat the option to compare several (default: the recorded policy)",
    )
    add("--seed", type=int, metavar="N", help="seed of the policy's random choices (default: the recorded one)")
    add_choices(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    recorded = _read(options.recording)
    runs = planned(options, recorded.run)
    # Imported late, so that bad input is reported at once.
    from themis_cli.simulate_running import broken, make_all

    documents = make_all(runs, options.jobs)
    if options.json:
        from themis_lab.simulator.compare import replay_document

        content = replay_document(recorded.document, documents)
        sys.stdout.write(json.dumps(content, allow_nan=False) + "\n")
        return broken(documents)
    from themis_cli.simulate_table import print_columns, print_completions

    columns: dict[str, Sequence[Document]] = {f"recorded: {recorded.document['policy']}": [recorded.document]}
    print_columns(columns | {document["policy"]: [document] for document in documents})
    if len(documents) == 1:
        print_completions(recorded.document, documents[0])
    return broken(documents)


def planned(options: argparse.Namespace, recorded: Run) -> list[Run]:
    """Return the runs to make: the recorded one, changed by the options. Lies and outages are added."""
    from rm_plugin.policies.registry import make_policy

    check_ranges(options)
    settings = chosen_settings(options, replace(recorded.settings, record_rounds=False))
    policies = list(dict.fromkeys(options.policy or [settings.policy]))
    for policy in policies:
        make_policy(policy)
    base = replace(
        recorded,
        error=recorded.error if options.error is None else options.error,
        lies=(*recorded.lies, *chosen_lies(options)),
    )
    seed = settings.seed if options.seed is None else options.seed
    return [replace(base, settings=replace(settings, policy=policy, seed=seed)) for policy in policies]


def _read(path: Path) -> Recorded:
    if path.is_dir():
        from themis_lab.paper.live.live_run import read_live

        live = read_live(path)
        return Recorded(run=live.run, document=live.document)
    from themis_lab.simulator.metrics import document_of
    from themis_lab.simulator.recording import parse_recording

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"cannot read {path}", value=reason, remedy="name a recording or a testbed run") from None
    recording = parse_recording(text, str(path))
    return Recorded(run=recording.run, document=document_of(recording.record))
