"""The state file: a cluster's deployment and processes, for later commands that stop or inspect it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from themis.errors import InputError
from themis_lab.devcluster.addresses import Addresses
from themis_lab.devcluster.daemons import Deployment, Programs
from themis_lab.devcluster.kerberos import Kerberos
from themis_lab.devcluster.layout import Layout
from themis_lab.devcluster.processes import KnownProcess
from themis_lab.devcluster.spec import ClusterSpec

_FORMAT = 1


def write_state(deployment: Deployment, processes: Mapping[str, KnownProcess]) -> None:
    """Replace the state file in one step."""
    document = {
        "format": _FORMAT,
        "identity": deployment.identity,
        "spec": to_builtins(deployment.spec),
        "addresses": to_builtins(deployment.addresses),
        "java": str(deployment.programs.java),
        "jars": str(deployment.programs.jars),
        "processes": {daemon: to_builtins(process) for daemon, process in processes.items()},
    }
    path = deployment.layout.state
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)


def read_state(folder: Path) -> tuple[Deployment, dict[str, KnownProcess]]:
    """Read the state file of a cluster's folder.

    Raises:
        InputError: The folder holds no cluster, or a state file that cannot be read.
    """
    layout = Layout(folder.absolute())
    try:
        document = json.loads(layout.state.read_text(encoding="utf-8"))
        processes = {daemon: KnownProcess(**process) for daemon, process in document["processes"].items()}
        return _deployment(document, layout), processes
    except FileNotFoundError:
        remedy = "start one: themis devcluster start --dir DIR"
        raise InputError("there is no development cluster in this folder", value=str(folder), remedy=remedy) from None
    except (KeyError, TypeError, ValueError) as error:
        remedy = f"written by another version? ({error!r})"
        raise InputError(
            "the state of this development cluster is unreadable", value=str(layout.state), remedy=remedy
        ) from error


def _deployment(document: Mapping[str, Any], layout: Layout) -> Deployment:
    if document["format"] != _FORMAT:
        raise ValueError(f"format {document['format']}")
    return Deployment(
        identity=document["identity"],
        spec=_spec(document["spec"]),
        addresses=Addresses(**document["addresses"]),
        layout=layout,
        programs=Programs(java=Path(document["java"]), jars=Path(document["jars"])),
    )


def _spec(fields: Mapping[str, Any]) -> ClusterSpec:
    kerberos = fields.get("kerberos")
    typed = {name: tuple(fields[name]) for name in ("gpus", "names", "devices")}
    return ClusterSpec(**{**fields, **typed, "kerberos": Kerberos(**kerberos) if kerberos else None})
