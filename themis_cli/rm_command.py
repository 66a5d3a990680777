"""`themis rm`: run, watch, stop and drain a ResourceManager, make its certificate, and find this machine's cards."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import socket
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from submarine_client.admin import Admin
    from themis.wire import themis_pb2 as pb


def add_to(commands: Subcommands) -> None:
    """Add `rm start`, `check`, `detect`, `init`, `status`, `stop`, `reload`, `drain` and `undrain`."""
    group = commands.add_parser("rm", help="run a ResourceManager").add_subparsers(metavar="COMMAND", required=True)
    start = group.add_parser("start", help="run one in the foreground until SIGTERM or Ctrl-C")
    start.add_argument("-c", "--config", required=True, metavar="FILE", help="settings, YAML; or an example's name")
    start.add_argument("--standby", action="store_true", help="wait while another one runs, and take over at its end")
    start.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    start.set_defaults(run=_start)
    check = group.add_parser("check", help="check the settings, the cluster file and the file of queues")
    check.add_argument("-c", "--config", required=True, metavar="FILE", help="settings, YAML; or an example's name")
    check.set_defaults(run=_check)
    detect = group.add_parser("detect", help="print a cluster file with the NVIDIA GPUs of this machine")
    detect.add_argument(
        "--cpu-nodes", type=int, default=0, metavar="N", help="add N CPU nodes, which share the remaining cores"
    )
    detect.set_defaults(run=_detect)
    status = group.add_parser("status", help="show a running one and its machines; exit code 1 if it is in trouble")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=_status)
    stop = group.add_parser("stop", help="stop a running one, and its apps")
    stop.add_argument("--keep-apps", action="store_true", help="apps run on; the next start takes them up")
    stop.add_argument(
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="how long to wait for its end; default: 120"
    )
    stop.set_defaults(run=_stop)
    reload = group.add_parser("reload", help="read the file of queues again, check it and apply it")
    reload.set_defaults(run=_reload)
    drain = group.add_parser("drain", help="let the leases of a machine end without renewal")
    drain.set_defaults(run=lambda options: _drain(options, drained=True))
    undrain = group.add_parser("undrain", help="use a drained machine again")
    undrain.set_defaults(run=lambda options: _drain(options, drained=False))
    for parser in (drain, undrain):
        parser.add_argument("node", metavar="NODE", help="name of the machine")
    for parser in (status, stop, reload, drain, undrain):
        add_connection_to(parser)
    init = group.add_parser("init", help="make an authority and a certificate for TLS, or renew the certificate")
    init.add_argument("--dir", default="tls", metavar="FOLDER", help="where; default: tls")
    init.add_argument(
        "--host", action="append", default=[], metavar="NAME", help="a name or address of the machine; may be repeated"
    )
    init.add_argument(
        "--days", type=float, default=397.0, metavar="DAYS", help="how long the certificate is valid; default: 397"
    )
    init.set_defaults(run=_init)


def add_connection_to(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the ResourceManager."""
    parser.add_argument("--rm", metavar="HOST:PORT", help="its address; default: THEMIS_RM, or this machine")
    parser.add_argument("--ca", metavar="FILE", help="the authorities to trust with TLS; default: THEMIS_CA")


def admin_of(options: argparse.Namespace) -> Admin:
    """Return a connection to the ResourceManager that the options name."""
    from submarine_client.address import rm_address
    from submarine_client.admin import Admin

    return Admin(rm_address(options.rm, os.environ), ca=options.ca)


def _start(options: argparse.Namespace) -> int:
    logging.basicConfig(
        level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    if options.log_level != "DEBUG":
        # This library logs every request.
        logging.getLogger("hdfs.client").setLevel(logging.WARNING)
    # Imported late, like everything slow to import, so that other commands start quickly.
    from themis.config.examples import ExampleKind, file_or_example
    from themis.config.rm_settings import load_rm_settings

    settings = load_rm_settings(file_or_example(options.config, ExampleKind.SETTINGS))
    if options.standby and not settings.standby.enabled:
        from themis.errors import InputError

        raise InputError("--standby needs a shared state", remedy="set standby.enabled in the settings of all of them")
    # Imported even later: gRPC and the solvers are slow to import, and bad settings are reported at once.
    from rm_plugin.service.server import run

    return run(settings, standby=options.standby)


def _check(options: argparse.Namespace) -> int:
    from themis.config.cluster_file import load_cluster
    from themis.config.examples import ExampleKind, file_or_example
    from themis.config.queues_file import load_queues
    from themis.config.rm_settings import load_rm_settings
    from themis.errors import FoundErrors

    settings = load_rm_settings(file_or_example(options.config, ExampleKind.SETTINGS))
    errors = FoundErrors()
    if settings.cluster is not None and settings.engine != "yarn":
        errors.run(load_cluster, settings.cluster)
    queues = None if settings.queues is None else errors.run(load_queues, settings.queues)
    errors.raise_all()
    of_queues = "" if queues is None else f", {len(queues.queues)} queues"
    sys.stdout.write(f"{options.config}: engine {settings.engine}, policy {settings.policy}{of_queues}: valid\n")
    return 0


def _reload(options: argparse.Namespace) -> int:
    with admin_of(options) as admin:
        queues = admin.reload()
    sys.stdout.write(f"{queues} queues hold from now on\n")
    return 0


def _detect(options: argparse.Namespace) -> int:
    from rm_plugin.engines.cards import cluster_file, read_cards
    from themis.errors import InputError

    cards = read_cards()
    if cards is None:
        raise InputError("nvidia-smi is not installed", remedy="install the driver, or use an emulated example cluster")
    host = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-") or "machine"
    cores = len(os.sched_getaffinity(0))
    sys.stdout.write(cluster_file(cards, host=host, cores=cores, cpu_nodes=options.cpu_nodes))
    return 0


def _init(options: argparse.Namespace) -> int:
    from rm_plugin.service.certificates import AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY, init_tls

    folder = Path(options.dir)
    made = init_tls(folder, options.host, days=options.days)
    sys.stdout.write(
        f"tls:\n  certificate: {folder / CERTIFICATE}\n  key: {folder / KEY}\n  ca: {folder / AUTHORITY}\n"
    )
    sys.stderr.write(
        f"a certificate for {', '.join(made.names)} until {_when(made.expires_at_s)}. Put the lines above into the"
        f" settings, paths relative to their file, and give {AUTHORITY} to users on other machines. {AUTHORITY_KEY}"
        " signs the next certificates: keep it secret\n"
    )
    return 0


def _status(options: argparse.Namespace) -> int:
    with admin_of(options) as admin:
        status = admin.status()
    if options.json:
        from google.protobuf.json_format import MessageToDict

        document = MessageToDict(status, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        from submarine_client.terminal import Terminal

        terminal = Terminal.of_process()
        terminal.say(_status_text(status, terminal.width))
    return 1 if status.store_trouble or status.engine_trouble else 0


def _status_text(status: pb.RmStatus, width: int) -> str:
    from submarine_client.table import MISSING, table
    from submarine_client.terminal import fields

    process = f"process {status.pid} on {status.host}, since {_when(status.started_at_s)}"
    lines = [
        ("Themis", f"{status.version}, {process}"),
        ("Settings", f"engine {status.engine}, policy {status.policy}, state_dir {status.state_dir}"),
        ("Store", status.store_trouble or "ok"),
        ("Engine", status.engine_trouble or "ok"),
        ("Apps", f"{status.apps_running} running, {status.apps_waiting} waiting to start"),
        *[("Limit", limit) for limit in status.limits],
        *[("Standby", standby) for standby in status.standbys],
        *([("Certificate", _validity(status))] if status.certificate_expires_at_s else []),
    ]
    header = ("MACHINE", "STATE", "GPUS", "LEASED", "CLOSED", "LAST LEASE ENDS")
    rows = [
        (
            *(node.machine_id, node.state, str(node.gpus), str(node.gpus_leased), str(node.gpus_closed)),
            _when(node.last_lease_end_s) if node.gpus_leased else MISSING,
        )
        for node in status.nodes
    ]
    return f"{fields(lines, width)}\n\n{table(header, rows, width)}"


def _validity(status: pb.RmStatus) -> str:
    left_d = (status.certificate_expires_at_s - status.now_s) / 86_400
    end = _when(status.certificate_expires_at_s)
    return f"expired {end}: themis rm init, and a restart" if left_d < 0 else f"until {end}, {left_d:.0f} days"


def _stop(options: argparse.Namespace) -> int:
    with admin_of(options) as admin:
        status = admin.stop(keep_apps=options.keep_apps)
        if not admin.wait_until_gone(status, options.timeout, now_s=time.monotonic, sleep=time.sleep):
            sys.stderr.write(f"themis: process {status.pid} on {status.host} still answers; see its log\n")
            return 1
    apps = "its apps run on; the next start takes them up" if options.keep_apps else "its apps have ended"
    sys.stdout.write(f"process {status.pid} on {status.host} has stopped; {apps}\n")
    return 0


def _drain(options: argparse.Namespace, *, drained: bool) -> int:
    with admin_of(options) as admin:
        node = admin.drain(options.node, drained=drained)
    if not drained:
        text = "is used again" if node.state == "usable" else f"is {node.state}"
    elif node.gpus_leased:
        text = f"drains: {node.gpus_leased} of {node.gpus} GPUs are leased until {_when(node.last_lease_end_s)} at most"
    else:
        text = "is drained: no GPU is leased"
    sys.stdout.write(f"{node.machine_id} {text}\n")
    return 0


def _when(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().isoformat(sep=" ", timespec="seconds")
