"""Plans of clusters for tests; they are never started."""

from pathlib import Path

from themis_lab.devcluster.addresses import Addresses
from themis_lab.devcluster.daemons import Deployment, Programs
from themis_lab.devcluster.layout import Layout
from themis_lab.devcluster.spec import ClusterSpec


def a_deployment(root, gpus=(4, 2)):
    return Deployment(
        identity="c0ffee",
        spec=ClusterSpec(gpus=gpus, user="someone"),
        addresses=Addresses(network="127.18.52", first_port=20000, nodes=len(gpus)),
        layout=Layout(root),
        programs=Programs(java=Path("/java/bin/java"), jars=Path("/jars")),
    )
