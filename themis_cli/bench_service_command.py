"""`themis bench service`: load a ResourceManager with many app masters, and time it."""

from __future__ import annotations

import argparse
import json
import sys

from themis.choices import AppMastersStart
from themis.config.defaults import DEFAULT_POLICY
from themis.interruption import OneInterruption
from themis_cli.parsers import Subcommands


def add_to(group: Subcommands) -> None:
    """Add `service` to `bench`."""
    parser = group.add_parser("service", help="time a ResourceManager under the load of many apps")
    parser.add_argument(
        "--apps", type=int, default=200, metavar="N", help="apps that fill the cluster; default: %(default)s"
    )
    parser.add_argument(
        "--waiting", type=int, default=0, metavar="M", help="more apps, which wait; default: %(default)s"
    )
    parser.add_argument("--gpus", type=int, default=1000, metavar="G", help="GPUs of the cluster; default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="how long to measure; default: %(default)g"
    )
    parser.add_argument(
        "--lease-s", type=float, default=20.0, metavar="S", help="seconds of a lease; default: %(default)g"
    )
    parser.add_argument(
        "--policy", default=DEFAULT_POLICY, metavar="NAME", help="policy of the rounds; default: %(default)s"
    )
    parser.add_argument(
        "--app-masters",
        choices=[each.value for each in AppMastersStart],
        default=AppMastersStart.AT_GRANT.value,
        help="when app masters start; default: %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_service)


def _service(options: argparse.Namespace) -> int:
    from rm_plugin.policies.registry import make_policy
    from themis_lab.bench.service_output import document, table
    from themis_lab.bench.service_run import ServiceBenchPlan, run_plan

    make_policy(options.policy)
    plan = ServiceBenchPlan(
        apps=options.apps,
        waiting=options.waiting,
        gpus=options.gpus,
        seconds=options.seconds,
        lease_s=options.lease_s,
        policy=options.policy,
        app_masters=AppMastersStart(options.app_masters),
    )
    # SIGTERM is treated like Ctrl-C. Otherwise the folder of the benchmark would remain.
    with OneInterruption():
        result = run_plan(plan, lambda phase: sys.stderr.write(f"{phase}\n"))
    sys.stdout.write((json.dumps(document(result)) if options.json else table(plan, result)) + "\n")
    return 0
