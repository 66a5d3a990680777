"""`themis simulate`: run a workload on a cluster under one or more policies, in virtual time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from themis.config.defaults import DEFAULT_POLICY
from themis.errors import InputError
from themis_cli.parsers import Subcommands
from themis_cli.simulate_options import DEFAULT_SEED, add_choices, check_ranges, chosen_lies, chosen_settings

if TYPE_CHECKING:
    from rm_plugin.policies.port import Explanation
    from themis_lab.simulator.record import RunRecord
    from themis_lab.simulator.runs import Run
    from themis_lab.simulator.settings import Settings
    from themis_lab.simulator.workload import Workload


_ALL = "all"


def add_to(commands: Subcommands) -> None:
    """Add `simulate`."""
    parser = commands.add_parser("simulate", help="run a workload on a cluster in virtual time")
    add = parser.add_argument
    add(
        "--policy",
        action="append",
        metavar="NAME",
        help=f"policy to run; repeat the option to compare several, or write `all` (default: {DEFAULT_POLICY})",
    )
    add("--workload", required=True, metavar="NAME|FILE", help="w1, w2-small, .., a public trace, or a mix (.yaml)")
    add(
        "--cluster",
        metavar="NAME|SPEC",
        help="testbed, paper-256, .., 16x8+6x4/1+16x1, or a cluster file (default: testbed, or the mix's)",
    )
    add(
        "--seed",
        "--first-seed",
        type=int,
        metavar="N",
        help=f"seed of all random choices, or the first of several (default: {DEFAULT_SEED}, or the mix's)",
    )
    add(
        "--seeds",
        type=int,
        default=1,
        metavar="N",
        help="number of seeds per policy, from --first-seed on; shows median and spread",
    )
    add("--apps", type=int, metavar="N", help="number of apps")
    add("--scale", type=float, help="divide all work by this factor, and the gaps between arrivals too")
    add(
        "--network-intensive", type=float, metavar="SHARE", help="share of apps whose models are sensitive to placement"
    )
    add("--throughputs", metavar="FILE", help="file with the throughputs of a Gavel trace")
    add(
        "--skip-bad-rows",
        action="store_true",
        default=None,
        help="leave out rows of a trace that cannot be read, and report them",
    )
    add("--option", action="append", metavar="NAME=VALUE", help="another option of the workload; repeatable")
    add("--explain", metavar="APP", help="explain every round of an app in words")
    add("--record", type=Path, metavar="FILE", help="write input, rounds and outcomes, for `themis replay`")
    add_choices(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    runs = planned(options)
    if options.explain is not None or options.record is not None:
        return _one_in_full(options, runs)
    # Imported late, so that bad input is reported at once.
    from themis_cli.simulate_output import show
    from themis_cli.simulate_running import broken, make_all

    documents = make_all(runs, options.jobs)
    show(documents, as_json=options.json)
    return broken(documents)


def _one_in_full(options: argparse.Namespace, runs: Sequence[Run]) -> int:
    """Make one run with all its rounds, to record it or to explain one app."""
    from themis_cli.simulate_recording import opened_recording
    from themis_cli.simulate_running import make_one
    from themis_lab.simulator.explain import PolicyWords
    from themis_lab.simulator.workload import unknown_app

    run = _only(runs)
    if options.explain is not None and options.explain not in (names := [app.name for app in run.workload.apps]):
        raise unknown_app(options.explain, names)
    run = replace(run, settings=replace(run.settings, record_rounds=True))
    words = None if options.explain is None else PolicyWords(run.settings.policy, options.explain)
    with opened_recording(options.record) as write:
        record = make_one(run, words)
        try:
            write(run, record)
        finally:
            # Print the result even if its recording cannot be written.
            status = _shown(options, record, {} if words is None else words.by_round)
    return status


def _shown(options: argparse.Namespace, record: RunRecord, words: Mapping[int, Explanation]) -> int:
    """Print the requested output of a run. Returns the exit code.

    Args:
        options: The options of the command.
        record: The record of the run.
        words: What the policy says of the app to explain, by round.
    """
    from themis_cli.simulate_explain import explained, explained_lines
    from themis_cli.simulate_output import show
    from themis_cli.simulate_running import broken
    from themis_lab.simulator.explain import explain
    from themis_lab.simulator.metrics import document_of

    document = document_of(record)
    if options.explain is None:
        show([document], as_json=options.json)
        return broken([document])
    rounds = explain(record.rounds, options.explain, words)
    if options.json:
        show([{**document, "explained": explained(options.explain, rounds)}], as_json=True)
    else:
        sys.stdout.write("\n".join(explained_lines(options.explain, rounds)) + "\n")
    return broken([document])


def _only(runs: Sequence[Run]) -> Run:
    if len(runs) > 1:
        remedy = "name one --policy, and leave --seeds out"
        raise InputError("--explain and --record are of one run", value=f"{len(runs)} runs", remedy=remedy)
    return runs[0]


def _able(settings: Settings, workloads: Sequence[Workload]) -> list[str]:
    """All registered policies that can run the workloads. Names the others on standard error.

    Raises:
        InputError: None can.
    """
    from rm_plugin.policies.registry import POLICIES
    from themis_lab.simulator.validation import refusal

    able: list[str] = []
    refused: dict[str, InputError] = {}
    for policy in POLICIES:
        reasons = [refusal(workload, replace(settings, policy=policy)) for workload in workloads]
        reason = next((each for each in reasons if each is not None), None)
        if reason is None:
            able.append(policy)
        else:
            refused[policy] = reason
    if not able:
        raise next(iter(refused.values()))
    for policy, reason in refused.items():
        sys.stderr.write(f"simulate: without {policy}: {reason}\n")
    return able


def planned(options: argparse.Namespace) -> list[Run]:
    """Return the runs to make, policy by policy and seed by seed.

    Raises:
        InputError: An unknown name, a number out of range, or options that exclude each other.
    """
    from rm_plugin.policies.registry import make_policy
    from themis_cli.simulate_input import read_input
    from themis_lab.simulator.runs import Run

    check_ranges(options)
    named = list(dict.fromkeys(options.policy or [DEFAULT_POLICY]))
    for policy in named:
        if policy != _ALL:
            make_policy(policy)
    given = read_input(options, DEFAULT_SEED)
    settings, lies = chosen_settings(options, given.settings), chosen_lies(options)
    workloads = {seed: given.workload(seed) for seed in range(given.seed, given.seed + options.seeds)}
    policies = _able(settings, list(workloads.values())) if _ALL in named else named
    return [
        Run(
            workload=workload,
            settings=replace(settings, policy=policy, seed=seed),
            error=options.error or 0.0,
            lies=lies,
        )
        for policy in policies
        for seed, workload in workloads.items()
    ]
