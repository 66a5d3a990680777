"""Hadoop's commands `yarn` and `hdfs` as scripts for one cluster, because only Hadoop's jars are available."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from themis_lab.devcluster.daemons import TOOL_HEAP_MB, Deployment, java_command

_CLI = "org.apache.hadoop.yarn.client.cli"
_YARN = {
    "application|app|applicationattempt|container": (f"{_CLI}.ApplicationCLI", False),
    "logs": (f"{_CLI}.LogsCLI", True),
    "node": (f"{_CLI}.NodeCLI", True),
    "nodeattributes": (f"{_CLI}.NodeAttributesCLI", True),
    "queue": (f"{_CLI}.QueueCLI", True),
    "rmadmin": (f"{_CLI}.RMAdminCLI", True),
}
_HDFS = {
    "dfs": ("org.apache.hadoop.fs.FsShell", True),
    "dfsadmin": ("org.apache.hadoop.hdfs.tools.DFSAdmin", True),
    "fsck": ("org.apache.hadoop.hdfs.tools.DFSck", True),
}
# First word of the arguments (a pattern of `case`): the class, and whether it is called without that word.
_Table = Mapping[str, tuple[str, bool]]


def tool_scripts(deployment: Deployment) -> Mapping[str, str]:
    """The scripts, text by name."""
    return {"yarn": _script(deployment, "yarn", _YARN), "hdfs": _script(deployment, "hdfs", _HDFS)}


def _script(deployment: Deployment, name: str, table: _Table) -> str:
    words = ", ".join(word for pattern in table for word in pattern.split("|"))
    cases = [f"  {pattern}) main={main}{'; shift' if shift else ''} ;;" for pattern, (main, shift) in table.items()]
    java = [shlex.quote(word) for word in java_command(deployment, "", TOOL_HEAP_MB)[:-1]]
    return "\n".join(
        [
            "#!/bin/sh",
            f"# Hadoop's `{name}` for the development cluster in {deployment.layout.root}",
            'case "$1" in',
            *cases,
            f'  *) echo "{name}: first argument must be one of: {words}" >&2; exit 2 ;;',
            "esac",
            f"export HADOOP_CONF_DIR={shlex.quote(str(deployment.layout.conf))}",
            f'export HADOOP_USER_NAME="${{HADOOP_USER_NAME:-{deployment.spec.user}}}"',
            f'exec {" ".join(java)} -Dhadoop.root.logger=WARN,console "$main" "$@"',
            "",
        ]
    )
