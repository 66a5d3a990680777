"""`themis devcluster`: real Hadoop daemons on loopback addresses (`themis_lab.devcluster`)."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from themis.errors import InputError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.devcluster.cluster import DevCluster

DEFAULT_FOLDER = Path("out/devcluster")
DEFAULT_GPUS = (4, 4, 2)


def add_to(commands: Subcommands) -> None:
    """Add `devcluster` with its actions."""
    group = commands.add_parser("devcluster", help="real Hadoop daemons on this machine")
    actions = group.add_subparsers(metavar="COMMAND", required=True)
    start = actions.add_parser("start", help="start HDFS and YARN and return when they are ready")
    start.add_argument(
        "--nodes", type=int, metavar="N", help="number of nodes, with 4 GPUs each unless --gpus is given (default: 3)"
    )
    start.add_argument("--gpus", metavar="N,..", help="GPUs that each node declares; default: 4,4,2")
    start.add_argument(
        "--devices", metavar="TYPE,..", help="device type that each node reports, such as k80,v100,cpu; default: none"
    )
    start.add_argument("--hadoop", metavar="VERSION", help="Hadoop's version, fetched when missing; default: 3.4.2")
    start.set_defaults(run=_start)
    stop = actions.add_parser("stop", help="stop all its processes and remove its folder")
    stop.add_argument("--keep-logs", action="store_true", help="keep the daemons' logs")
    stop.set_defaults(run=_stop)
    status = actions.add_parser("status", help="show daemons, nodes, HDFS, and the variables to export")
    status.set_defaults(run=_status)
    run = actions.add_parser("run", help="run a command with the exported variables")
    run.add_argument("command", nargs="+", metavar="COMMAND", help="after `--`")
    run.set_defaults(run=_run)
    for parser in (start, stop, status, run):
        parser.add_argument(
            "--dir", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="its folder; default: %(default)s"
        )
    for parser in (start, status):
        parser.add_argument("--json", action="store_true", help="print JSON")


def _start(options: argparse.Namespace) -> int:
    gpus = _gpus(options.nodes, options.gpus)
    # Imported late, so that bad options are reported at once.
    from themis_lab.devcluster.cluster import DevCluster
    from themis_lab.devcluster.spec import ClusterSpec

    devices = tuple(options.devices.split(",")) if options.devices else ()
    spec = ClusterSpec(gpus=gpus, devices=devices, version=options.hadoop)
    cluster = DevCluster.start(spec, options.dir, say=_say)
    return _show(cluster, as_json=options.json)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _stop(options: argparse.Namespace) -> int:
    from themis_lab.devcluster.cluster import DevCluster

    DevCluster.attach(options.dir).stop(keep_logs=options.keep_logs)
    return 0


def _status(options: argparse.Namespace) -> int:
    from themis_lab.devcluster.cluster import DevCluster

    return _show(DevCluster.attach(options.dir), as_json=options.json)


def _run(options: argparse.Namespace) -> int:
    from themis_lab.devcluster.cluster import DevCluster

    command = options.command
    cluster = DevCluster.attach(options.dir)
    path = f"{cluster.bin_dir}:{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, **cluster.exports, "PATH": path}
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise InputError("cannot run the command", value=command[0], remedy=error.strerror or "") from None


def _gpus(nodes: int | None, gpus: str | None) -> tuple[int, ...]:
    if gpus is None:
        return DEFAULT_GPUS if nodes is None else (DEFAULT_GPUS[0],) * nodes
    try:
        counts = tuple(int(part) for part in gpus.split(","))
    except ValueError:
        remedy = "whole numbers with commas between them, one a node, such as 4,4,2"
        raise InputError("--gpus cannot be read", value=gpus, remedy=remedy) from None
    if nodes is not None and nodes != len(counts):
        remedy = f"--gpus {gpus} names {len(counts)} nodes; leave --nodes out"
        raise InputError("--nodes and --gpus disagree", value=nodes, remedy=remedy)
    return counts


def _show(cluster: DevCluster, *, as_json: bool) -> int:
    """Print the state of the cluster. Returns 0 if everything is up, else 1."""
    document = _document(cluster)
    sys.stdout.write((json.dumps(document, indent=1) if as_json else _text(document)) + "\n")
    return 0 if document["ready"] else 1


def _document(cluster: DevCluster) -> dict[str, Any]:
    nodes, daemons, hdfs = cluster.nodes(), cluster.daemons(), cluster.hdfs()
    rows = [
        {
            "host": host,
            "address": cluster.node_addresses[host],
            "state": nodes[host].state if host in nodes else "UNKNOWN",
            "device": nodes[host].device if host in nodes else "",
            "gpus": gpus,
            "gpus_used": nodes[host].gpus_used if host in nodes else 0,
        }
        for host, gpus in cluster.node_gpus.items()
    ]
    return {
        "ready": cluster.is_ready(),
        "folder": str(cluster.deployment.layout.root),
        "daemons": dict(daemons),
        "nodes": rows,
        "hdfs": str(hdfs),
        "fs": cluster.fs_uri,
        "rm_web": cluster.rm_web,
        "namenode_web": cluster.namenode_web,
        "hosts_file": str(cluster.hosts_file),
        "export": dict(cluster.exports),
    }


def _text(document: dict[str, Any]) -> str:
    lines = [f"{'daemon':<28} {'pid':>8}"]
    lines += [f"{name:<28} {pid or 'ended':>8}" for name, pid in document["daemons"].items()]
    lines += ["", f"{'node':<16} {'address':<16} {'state':<16} {'device':<8} GPUs used"]
    lines += [
        f"{row['host']:<16} {row['address']:<16} {row['state']:<16} {row['device']:<8} "
        f"{row['gpus']:>4} {row['gpus_used']:>4}"
        for row in document["nodes"]
    ]
    lines += ["", f"HDFS        {document['hdfs']}, {document['fs']}"]
    lines += [f"YARN        {document['rm_web']}", f"NameNode    {document['namenode_web']}"]
    lines += [f"hosts file  {document['hosts_file']}", ""]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in document["export"].items()]
    return "\n".join(lines)
