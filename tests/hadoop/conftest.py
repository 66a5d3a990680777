"""The Hadoop tier: tests against real daemons of HDFS and YARN, one development cluster for each test process."""

import os
import signal
from pathlib import Path

import pytest
from kdc import kdc_jars
from yarn_apps import Application, client_environment

from themis.hadoop.errors import HadoopMissingError
from themis.hadoop.jars import jar_folder, java_program
from themis.hadoop.jvm import start_jvm
from themis.hadoop.yarn_client import YarnClient
from themis.processes import find_marked
from themis_lab.devcluster.cluster import DevCluster
from themis_lab.devcluster.configuration import MARK
from themis_lab.devcluster.spec import ClusterSpec

HERE = Path(__file__).parent
GPUS = (4, 4, 2)
TIMEOUT_S = 300
APART = ("test_yarn_faults.py", "test_yarn_site.py")
"""Files whose tests share the cluster only: each goes to the process that is free, for they take half of the time."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark every test in this folder as one of this tier. Those of one file run in one process, except in `APART`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.hadoop)
            # The first one waits until jars are fetched and the daemons are up.
            item.add_marker(pytest.mark.timeout(TIMEOUT_S), append=False)
            if item.path.name not in APART:
                item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def hadoop_programs():
    """Java and Hadoop's jars: without them there is nothing to test, which no CI may pass over."""
    return _found(lambda: (java_program(), jar_folder(fetch=True)))


@pytest.fixture(scope="session")
def kdc_programs():
    """Java and the jars of a KDC."""
    return _found(lambda: (java_program(), kdc_jars()))


def _found(find):
    try:
        return find()
    except HadoopMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(f"the Hadoop tier cannot run, and CI is set: {error}")
        pytest.skip(f"NOT TESTED against Hadoop: {error}")


@pytest.fixture(scope="session", autouse=True)
def _torn_down_on_sigterm():
    # Else pytest ends without a teardown, and the daemons live on.
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, former)


@pytest.fixture(scope="session")
def cluster(hadoop_programs, tmp_path_factory):
    """HDFS and YARN with nodes of 4, 4 and 2 GPUs; a test that hurts it takes `breakable_cluster`."""
    cluster = DevCluster.start(ClusterSpec(gpus=GPUS), tmp_path_factory.mktemp("hadoop"))
    try:
        yield cluster
    finally:
        cluster.stop()
    assert find_marked({MARK: cluster.deployment.identity}) == ()
    assert not cluster.deployment.layout.root.exists()


@pytest.fixture
def breakable_cluster(cluster):
    """The same cluster; what the test killed or decommissioned comes back after it."""
    yield cluster
    cluster.restore()


@pytest.fixture
def stranger(cluster):
    """A YARN application that is none of ours."""
    start_jvm(client_environment(cluster))
    with YarnClient() as client:
        application = Application(client, client_environment(cluster), name="stranger", app_type="OTHER")
        am = application.attempt()
        am.register()
        yield am
        application.close()
