"""`themis testbed`: the testbed (`themis_lab.testbed`), and the live experiment (`themis_lab.paper.live`)."""

from __future__ import annotations

import argparse
from pathlib import Path

from themis.errors import InputError
from themis_cli.parsers import Subcommands
from themis_lab.testbed.cli import add_arguments, run

DEFAULT_POLICIES = "themis,gandiva,tiresias"
DEFAULT_SCALE = "quick"
DEFAULT_OUT = Path("out/experiment")

_OF_THE_EXPERIMENT = {
    "--workload": "workload",
    "--policies": "policies",
    "--scale": "scale",
    "--seed": "experiment_seed",
    "--out": "experiment_out",
}
"""Names under which the parser keeps these options. `run` has a --seed and an --out of its own."""


def add_to(commands: Subcommands) -> None:
    """Add `testbed`."""
    add_arguments(commands)
    parser = commands.choices["testbed"]
    group = parser.add_argument_group("the live experiment: one run per policy on a workload of the paper")
    add = group.add_argument
    add("--workload", metavar="NAME", help="w1 or w2")
    add("--policies", metavar="A,B,..", help=f"default: {DEFAULT_POLICIES}")
    add("--scale", metavar="NAME", help=f"quick, full, or a file of your own; default: {DEFAULT_SCALE}")
    add("--seed", type=int, metavar="N", dest="experiment_seed", help="seed of all random choices (default: 1)")
    add("--out", type=Path, metavar="DIR", dest="experiment_out", help=f"default: {DEFAULT_OUT}")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.action is None:
        return _experiment(options)
    given = [flag for flag, name in _OF_THE_EXPERIMENT.items() if getattr(options, name) is not None]
    if given:
        remedy = f"write options of {options.action} behind it; the experiment has no subcommand"
        raise InputError("an option of the experiment stands before a subcommand", value=given[0], remedy=remedy)
    if options.action == "run":
        # The testbed knows the ResourceManager only by its wire protocol. So an unknown policy is reported before
        # anything starts.
        from rm_plugin.policies.registry import make_policy

        make_policy(options.policy)
    if options.action == "report":
        from themis_lab.paper.live.folder import is_experiment

        if is_experiment(options.out):
            from themis_lab.paper.live.command import report_again

            return report_again(options.out)
    return run(options)


def _experiment(options: argparse.Namespace) -> int:
    if options.workload is None:
        raise InputError(
            "say what to do",
            remedy="run MIX, report OUT, or --workload w1 for the experiment; see themis testbed --help",
        )
    from rm_plugin.policies.registry import make_policy
    from themis_lab.paper.live.command import run_experiment

    policies = DEFAULT_POLICIES if options.policies is None else options.policies
    names = [name.strip() for name in policies.split(",")]
    if not all(names):
        remedy = "name each policy, with one comma between two: themis,gandiva"
        raise InputError("a policy without a name in --policies", value=policies, remedy=remedy)
    for name in names:
        make_policy(name)
    seed = 1 if options.experiment_seed is None else options.experiment_seed
    return run_experiment(
        workload=options.workload,
        policies=names,
        scale=DEFAULT_SCALE if options.scale is None else options.scale,
        seed=seed,
        out=DEFAULT_OUT if options.experiment_out is None else options.experiment_out,
    )
