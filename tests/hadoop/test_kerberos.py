"""Kerberos: a real KDC, and HDFS and YARN that demand tickets, all on loopback.

Each client is a process of its own: a process logs in once, and its JVM serves one cluster.
"""

import getpass
import json
import re
import time

import pytest
from kdc import REALM
from secure_cluster import TOKEN_GREATEST_LIFE_S, TOKEN_LIFE_S, running_secure_cluster
from themis_on_yarn import ThemisOnYarn

SUBMIT = """with YarnClient(connect_wait_s=10.0) as yarn:
        launch = ProcessLaunch(commands=(command_line(["true"]),), tokens=submission_tokens())
        submission = AppSubmission(name="waits", memory_mb=256, launch=launch, user={user!r})
        app_id = yarn.submit(submission)
        print(yarn.report(app_id).user, len(yarn.nodes()))
        yarn.kill(app_id)"""
ITERATIONS = 600
"""Of 0.1 s each: with its two starts such an app takes longer than tokens can be renewed, and each half does not."""
LOGIN = "login(yarn_configuration(5.0))"
FILES = """hdfs, path = open_webhdfs("hdfs:///user/themis/files")
    hdfs.create(f"{path}/a", lambda: b"old")
    hdfs.create(f"{path}/b", lambda: iter([b"n", b"ew"]))
    hdfs.rename(f"{path}/b", f"{path}/a", overwrite=True)
    print([each.name for each in hdfs.list(path)], hdfs.read_whole(f"{path}/a"), hdfs.delete(path))"""
# The first token alone is refused when its time is over; the client that fetched it goes on.
LONG = """import time
    hdfs, path = open_webhdfs("hdfs:///user/themis/long")
    tokens = hdfs._client._session._tokens
    first, begun = tokens.current(), time.monotonic()
    texts = set()
    while time.monotonic() < begun + {seconds}:
        hdfs.create(path, lambda: b"x")
        texts.add(tokens.current())
        time.sleep(0.5)
    print(len(texts))
    tokens._text, tokens._replace_at_s = first, time.monotonic() + 60
    hdfs.status(path)"""


@pytest.fixture(scope="module")
def secure(hadoop_programs, kdc_programs, tmp_path_factory):
    with running_secure_cluster(hadoop_programs, kdc_programs, tmp_path_factory.mktemp("secure")) as secure:
        yield secure


def test_a_keytab_logs_in(secure):
    assert secure.ask(f"{LOGIN}; {LOGIN}; print(current_user(), is_secure())") == "themis True"


def test_a_submission_with_a_ticket_of_the_keytab(secure):
    assert secure.ask(SUBMIT.format(user="")) == "themis 1"


def test_a_submission_in_another_users_name_needs_the_right(secure):
    assert secure.ask(SUBMIT.format(user="alice")) == "alice 1"
    refused = secure.ask(SUBMIT.format(user="bob"))
    assert "themis/localhost@THEMIS.TEST" in refused
    assert "is not allowed to impersonate bob" in refused
    assert refused.split()[0] in ("YarnError", "LoginError")


@pytest.mark.parametrize("code", [SUBMIT.format(user=""), FILES], ids=["yarn", "hdfs"])
def test_without_credentials(secure, code):
    reported = secure.ask(code, keytab="", principal="", KRB5CCNAME="/no/such")
    assert reported.startswith("LoginError Hadoop does not accept our credentials")


@pytest.mark.parametrize("code", [LOGIN, FILES], ids=["yarn", "hdfs"])
@pytest.mark.parametrize(
    ("keytab", "principal", "expected"),
    [
        ("themis", "", "LoginError a keytab needs a principal, and a principal its keytab"),
        ("absent", "themis", "LoginError no such keytab"),
        ("stranger", "themis/_HOST", "LoginError Hadoop does not accept our credentials (logging in to Hadoop)"),
    ],
)
def test_credentials_that_cannot_be(secure, code, keytab, principal, expected):
    assert secure.ask(code, keytab=keytab, principal=principal).startswith(expected)


def test_a_principal_without_a_keytab(secure):
    assert secure.ask(LOGIN, keytab="").startswith("LoginError a keytab needs a principal, and a principal its keytab")


def test_files_on_a_secure_hdfs(secure):
    assert secure.ask(FILES) == "['a'] b'new' True"


def test_files_by_a_ticket_in_place_of_a_keytab(secure, tmp_path):
    secure.kdc.take_ticket("themis/localhost", tmp_path / "ticket")
    assert secure.ask(FILES, keytab="", principal="", KRB5CCNAME=str(tmp_path / "ticket")) == "['a'] b'new' True"


def test_another_user_may_not_write_there(secure):
    reported = secure.ask(FILES, keytab="stranger", principal="stranger")
    assert reported.startswith("HdfsRefusedError cannot write a file on HDFS: '/user/themis/files/a'")
    assert "Permission denied: user=stranger" in reported


def test_the_checkpoint_store_on_a_secure_hdfs(secure):
    # Its fault handler takes the JVM's from it when it is done, and the process would end by SIGSEGV.
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:faulthandler")
    reported = secure.run("-m", "pytest", *options, "tests/hadoop/secure_store_cases.py")
    assert re.search(r"^\d\d passed in", reported, re.MULTILINE), reported


def test_tokens_are_replaced_before_they_end(secure):
    replaced, _, refused = secure.ask(LONG.format(seconds=TOKEN_LIFE_S + 4)).partition("\n")
    assert int(replaced) >= 2
    assert refused.startswith("HdfsRefusedError cannot look at a file on HDFS") and "expired" in refused


@pytest.fixture
def themis(secure, tmp_path):
    """What starts a ResourceManager of Themis with a keytab."""

    def start(**yarn):
        keys = {"keytab": str(secure.kdc.keytab("themis")), "principal": f"themis/localhost@{REALM}"}
        return ThemisOnYarn(secure.cluster, tmp_path, **keys, **yarn)

    return start


def test_an_app_of_another_user_trains_with_checkpoints_on_a_secure_hdfs(secure, themis):
    with themis(as_submitter=True) as manager:
        app_id = manager.submit(job={"tasks": 1, "gpus_per_task": 1, "iterations": 100})
        app = manager.wait_until_ended(app_id)
        assert app.state == "FINISHED", manager.log()
        assert manager.yarn_app(app_id)["user"] == getpass.getuser()
        assert manager.audit() == ()
    store = app.best_checkpoint.rpartition("/job-")[0]
    reported = secure.run("-m", "themis_cli.main", "checkpoints", "list", store, "--json")
    newest = {each["job"]: each["iteration"] for each in json.loads(reported)}
    assert newest == {"job-00": 100, "job-01": 100}


@pytest.mark.nightly
def test_an_adopted_app_outlives_the_maximum_life_of_its_tokens(themis):
    with themis() as manager:
        begun_s = time.monotonic()
        app_id = manager.submit(job={"tasks": 1, "gpus_per_task": 1, "iterations": ITERATIONS})
        manager.wait_until_iterating(app_id, ITERATIONS // 2, TOKEN_GREATEST_LIFE_S)
        manager.stop()
        assert time.monotonic() - begun_s < TOKEN_GREATEST_LIFE_S
        manager.start()
        app = manager.wait_until_ended(app_id)
        assert app.state == "FINISHED", manager.log()
        assert time.monotonic() - begun_s > TOKEN_GREATEST_LIFE_S
        assert manager.audit() == ()
