"""A development cluster whose HDFS and YARN demand Kerberos, and programs that are its clients."""

import getpass
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from kdc import REALM, Kdc, running_kdc
from yarn_apps import ROOT

from themis.processes import find_marked
from themis.values import Value
from themis_lab.devcluster.cluster import DevCluster
from themis_lab.devcluster.configuration import MARK
from themis_lab.devcluster.kerberos import PRINCIPALS, Kerberos
from themis_lab.devcluster.spec import ClusterSpec

CLIENTS = ("themis/localhost", "stranger")
TOKEN_LIFE_S, TOKEN_GREATEST_LIFE_S = 20, 70
"""Short, so that tests see tokens renewed and replaced."""

SHELL = """
from themis.hadoop.client_configuration import yarn_configuration
from themis.hadoop.quoting import command_line
from themis.hadoop.security import current_user, is_secure, login, submission_tokens
from themis.hadoop.values import AppSubmission, ProcessLaunch
from themis.hadoop.webhdfs import open_webhdfs
from themis.hadoop.yarn_client import YarnClient
from themis.errors import ThemisError
try:
    {code}
except ThemisError as error:
    print(type(error).__name__, error)
"""
FOLDERS = """
from themis.hadoop.client_configuration import yarn_configuration
from themis.hadoop.records import java_class
from themis.hadoop.security import login
configuration = yarn_configuration(20.0)
login(configuration)
hdfs = java_class("org.apache.hadoop.fs.FileSystem").get(configuration)
permission = java_class("org.apache.hadoop.fs.permission.FsPermission")
for name, owner, mode in (("/tmp", "hdfs", "1777"), ("/user/themis", "themis", "755")):
    path = java_class("org.apache.hadoop.fs.Path")(name)
    hdfs.mkdirs(path)
    hdfs.setPermission(path, permission(mode))
    hdfs.setOwner(path, owner, owner)
"""


class SecureCluster(Value, frozen=True):
    """HDFS and YARN, and the KDC that they ask."""

    cluster: DevCluster
    kdc: Kdc
    hosts: Path

    def environment(self, keytab, principal, **more):
        """Of a client with these credentials; empty ones are not named."""
        named = {"THEMIS_HADOOP_KEYTAB": keytab and str(self.kdc.keytab(keytab))}
        named["THEMIS_HADOOP_PRINCIPAL"] = principal and f"{principal}@{REALM}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HADOOP_", "THEMIS_"))}
        given = {name: value for name, value in named.items() if value}
        hosts = {"THEMIS_HADOOP_HOSTS_FILE": str(self.hosts)}
        return {**kept, **self.cluster.exports, **hosts, "PYTHONPATH": str(ROOT), **given, **more}

    def run(self, *arguments, keytab="themis", principal="themis/_HOST", **more):
        """Run Python with these arguments; what it prints."""
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self.environment(keytab, principal, **more),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return done.stdout.strip()

    def ask(self, code, **credentials):
        """Run code that may use our clients; what it prints, of an error of ours its class and text."""
        return self.run("-c", SHELL.format(code=code), **credentials)


@contextmanager
def running_secure_cluster(hadoop_programs, kdc_programs, folder):
    """One node of 2 GPUs; user themis may act for alice and for the user of the test."""
    (folder / "kdc").mkdir()
    # Beside the nodes' names, which clients need not know, what `_HOST` stands for: the first name of our address.
    (folder / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    with running_kdc(*kdc_programs, folder / "kdc", (*PRINCIPALS, *CLIENTS)) as kdc:
        kerberos = Kerberos(
            realm=REALM,
            krb5_conf=str(kdc.krb5_conf),
            keytab=str(kdc.all_keys),
            proxy_user="themis",
            proxied=f"alice,{getpass.getuser()}",
            token_life_s=TOKEN_LIFE_S,
            token_greatest_life_s=TOKEN_GREATEST_LIFE_S,
        )
        cluster = DevCluster.start(ClusterSpec(gpus=(2,), kerberos=kerberos), folder / "cluster")
        try:
            secure = SecureCluster(cluster, kdc, folder / "hosts")
            secure.run("-c", FOLDERS, keytab="hdfs", principal="hdfs/localhost")
            yield secure
        finally:
            cluster.stop()
        assert find_marked({MARK: cluster.deployment.identity}) == ()
