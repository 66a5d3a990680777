"""Kerberos: a real KDC and a ResourceManager that demands tickets, both on loopback.

There are no NodeManagers here: an application is submitted, waits and is killed.
"""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from kdc import REALM, Kdc, running_kdc
from waiting import wait_until
from yarn_apps import ROOT

PRINCIPALS = ("rm/localhost", "themis/localhost", "stranger")
LOG4J = """
log4j.rootLogger=INFO,it
log4j.appender.it=org.apache.log4j.ConsoleAppender
log4j.appender.it.layout=org.apache.log4j.SimpleLayout
"""


@pytest.fixture(scope="module")
def kdc(kdc_programs, tmp_path_factory):
    java, jars = kdc_programs
    with running_kdc(java, jars, tmp_path_factory.mktemp("kdc"), PRINCIPALS) as kdc:
        yield kdc


@dataclass
class SecureYarn:
    """A ResourceManager that demands Kerberos, and what leads a client to it."""

    environment: dict[str, str]
    kdc: Kdc

    def ask(self, code, *, keytab="themis", principal="themis/_HOST", **environment):
        """Run Python with these credentials; what it prints of an error of ours is its class and text."""
        named = {"THEMIS_HADOOP_KEYTAB": keytab and str(self.kdc.keytab(keytab))}
        named["THEMIS_HADOOP_PRINCIPAL"] = principal and f"{principal}@{REALM}"
        values = {**self.environment, **{name: value for name, value in named.items() if value}, **environment}
        done = subprocess.run(
            [sys.executable, "-c", SHELL.format(code=code)], env=values, capture_output=True, text=True, timeout=90
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout.strip()


SHELL = """
from hadoop.client_configuration import yarn_configuration
from hadoop.quoting import command_line
from hadoop.security import current_user, is_secure, login, submission_tokens
from hadoop.values import AppSubmission, ProcessLaunch
from hadoop.yarn_client import YarnClient
from themis.errors import ThemisError
try:
    {code}
except ThemisError as error:
    print(type(error).__name__, error)
"""
SUBMIT = """with YarnClient(connect_wait_s=10.0) as yarn:
        launch = ProcessLaunch(commands=(command_line(["true"]),), tokens=submission_tokens())
        submission = AppSubmission(name="waits", memory_mb=256, launch=launch, user={user!r})
        app_id = yarn.submit(submission)
        print(yarn.report(app_id).user, len(yarn.nodes()))
        yarn.kill(app_id)"""


@pytest.fixture(scope="module")
def secure_yarn(hadoop_programs, kdc, tmp_path_factory):
    java, jars = hadoop_programs
    folder = tmp_path_factory.mktemp("secure")
    rm = "yarn.resourcemanager"
    ports = free_ports(5)
    (folder / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    write_site(
        folder / "core-site.xml",
        {
            "hadoop.security.authentication": "kerberos",
            "hadoop.tmp.dir": str(folder / "tmp"),
            "hadoop.proxyuser.themis.hosts": "*",
            "hadoop.proxyuser.themis.users": "alice",
        },
    )
    roles = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
    write_site(
        folder / "yarn-site.xml",
        {
            **{f"{rm}.{role}": f"localhost:{port}" for role, port in zip(roles, ports, strict=True)},
            f"{rm}.hostname": "localhost",
            f"{rm}.principal": f"rm/localhost@{REALM}",
            f"{rm}.keytab": str(kdc.keytab("rm")),
            f"{rm}.webapp.delegation-token-auth-filter.enabled": "false",
        },
    )
    write_site(
        folder / "capacity-scheduler.xml",
        {"yarn.scheduler.capacity.root.queues": "default", "yarn.scheduler.capacity.root.default.capacity": "100"},
    )
    (folder / "log4j.properties").write_text(LOG4J)
    krb5 = f"-Djava.security.krb5.conf={kdc.krb5_conf}"
    command = [
        *(str(java), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", krb5),
        *("--add-opens=java.base/java.lang=ALL-UNNAMED", f"-Djdk.net.hosts.file={folder}/hosts"),
        *("-Djava.net.preferIPv4Stack=true", f"-Dhadoop.home.dir={folder}", "-cp", f"{folder}:{jars}/*"),
        "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    ]
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HADOOP_", "THEMIS_HADOOP_"))}
    environment = {
        **plain,
        "PYTHONPATH": str(ROOT),
        "HADOOP_CONF_DIR": str(folder),
        "THEMIS_HADOOP_JARS": str(jars),
        "THEMIS_HADOOP_JVM_OPTIONS": krb5,
    }
    with running(command, environment, folder / "rm.log") as daemon:
        wait_until(lambda: daemon.poll() is not None or answers(ports[0]))
        assert daemon.poll() is None, (folder / "rm.log").read_text()[-3000:]
        yield SecureYarn(environment=environment, kdc=kdc)


def test_a_keytab_logs_in(secure_yarn):
    code = "login(yarn_configuration(5.0)); login(yarn_configuration(5.0)); print(current_user(), is_secure())"
    assert secure_yarn.ask(code) == "themis True"


def test_a_submission_with_a_ticket_of_the_keytab(secure_yarn):
    assert secure_yarn.ask(SUBMIT.format(user="")) == "themis 0"


def test_a_submission_in_another_users_name_needs_the_right(secure_yarn):
    assert secure_yarn.ask(SUBMIT.format(user="alice")) == "alice 0"
    refused = secure_yarn.ask(SUBMIT.format(user="bob"))
    assert "themis/localhost@THEMIS.TEST" in refused
    assert "is not allowed to impersonate bob" in refused
    assert refused.split()[0] in ("YarnError", "LoginError")


def test_without_credentials(secure_yarn):
    told = secure_yarn.ask(SUBMIT.format(user=""), keytab="", principal="", KRB5CCNAME="/no/such")
    assert told.startswith("LoginError Hadoop does not accept our credentials")


@pytest.mark.parametrize(
    ("keytab", "principal", "told"),
    [
        ("themis", "", "LoginError a keytab needs a principal, and a principal its keytab"),
        ("", "themis", "LoginError a keytab needs a principal, and a principal its keytab"),
        ("absent", "themis", "LoginError no such keytab"),
        ("stranger", "themis/_HOST", "LoginError Hadoop does not accept our credentials (logging in to Hadoop)"),
    ],
)
def test_credentials_that_cannot_be(secure_yarn, keytab, principal, told):
    assert secure_yarn.ask("login(yarn_configuration(5.0))", keytab=keytab, principal=principal).startswith(told)


@contextmanager
def running(command, environment, log):
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as daemon:
        try:
            yield daemon
        finally:
            daemon.kill()


def write_site(path, properties):
    lines = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items())
    path.write_text(f"<configuration>{''.join(lines)}</configuration>")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
