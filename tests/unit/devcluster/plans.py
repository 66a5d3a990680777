"""Plans of clusters that nobody starts, for tests."""

from pathlib import Path

from devcluster.addresses import Addresses
from devcluster.daemons import Plan, Programs
from devcluster.layout import Layout
from devcluster.spec import ClusterSpec


def a_plan(root, gpus=(4, 2)):
    return Plan(
        identity="c0ffee",
        spec=ClusterSpec(gpus=gpus, user="someone"),
        addresses=Addresses(network="127.18.52", first_port=20000, nodes=len(gpus)),
        layout=Layout(root),
        programs=Programs(java=Path("/java/bin/java"), jars=Path("/jars")),
    )
