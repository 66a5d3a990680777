"""The state file and its folder."""

import json

import pytest
from deployments import a_deployment
from msgspec.structs import replace

from themis.errors import InputError
from themis_lab.devcluster.folder import check_free, locked, remove
from themis_lab.devcluster.kerberos import Kerberos
from themis_lab.devcluster.layout import Layout
from themis_lab.devcluster.processes import KnownProcess
from themis_lab.devcluster.state import read_state, write_state

PROCESS = KnownProcess(pid=17, started=4711, boot="b")


@pytest.fixture
def deployment(tmp_path):
    return a_deployment(tmp_path)


def test_state_reads_back(deployment):
    write_state(deployment, {})
    assert read_state(deployment.layout.root) == (deployment, {})
    write_state(deployment, {"namenode": PROCESS})
    assert read_state(deployment.layout.root) == (deployment, {"namenode": PROCESS})
    assert [path.name for path in deployment.layout.root.iterdir()] == ["devcluster.json"]


def test_folder_without_cluster_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"no development cluster in this folder.*devcluster start"):
        read_state(tmp_path / "nothing")


def test_realm_reads_back(deployment):
    secure = replace(
        deployment, spec=replace(deployment.spec, kerberos=Kerberos(realm="R", krb5_conf="/c", keytab="/k"))
    )
    write_state(secure, {})
    assert read_state(deployment.layout.root) == (secure, {})


@pytest.mark.parametrize("change", [{"format": 99}, {"spec": {}}, {"processes": {"namenode": 3}}, {"identity": None}])
def test_invalid_state_is_an_error(deployment, change):
    write_state(deployment, {"namenode": PROCESS})
    document = {**json.loads(deployment.layout.state.read_text()), **change}
    if document["identity"] is None:
        del document["identity"]
    deployment.layout.state.write_text(json.dumps(document))
    with pytest.raises(InputError, match="is unreadable"):
        read_state(deployment.layout.root)


def test_truncated_state_is_an_error(deployment):
    write_state(deployment, {})
    deployment.layout.state.write_text(deployment.layout.state.read_text()[:40])
    with pytest.raises(InputError, match="is unreadable"):
        read_state(deployment.layout.root)


def test_folder_with_foreign_files_is_refused(tmp_path):
    layout = Layout(tmp_path / "c")
    check_free(layout)
    layout.logs.mkdir(parents=True)
    check_free(layout)
    (layout.root / "thesis.txt").touch()
    with pytest.raises(InputError, match=r"the cluster's folder is in use.*left alone"):
        check_free(layout)
    with pytest.raises(InputError, match="is a file"):
        check_free(Layout(layout.root / "thesis.txt"))


def test_existing_cluster_is_reported_before_other_errors(deployment):
    write_state(deployment, {})
    with pytest.raises(InputError, match=r"in this folder already.*devcluster stop"):
        check_free(deployment.layout)


def test_concurrent_changes_are_refused(tmp_path):
    layout = Layout(tmp_path / "c")
    with locked(layout), pytest.raises(InputError, match="is being started or stopped"), locked(layout):
        pytest.fail("both have it")
    with locked(layout):
        pass


def test_folder_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot make the cluster's folder"), locked(Layout(tmp_path / "file" / "c")):
        pytest.fail("it is there")


@pytest.mark.parametrize("keep_logs", [False, True])
def test_remove_follows_no_links(tmp_path, keep_logs):
    layout, elsewhere = Layout(tmp_path / "c"), tmp_path / "elsewhere"
    layout.logs.mkdir(parents=True)
    layout.data.mkdir()
    layout.state.touch()
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (layout.root / "link").symlink_to(elsewhere)
    remove(layout, keep_logs=keep_logs)
    assert (elsewhere / "kept").exists()
    assert layout.root.exists() == keep_logs
    assert not keep_logs or [path.name for path in layout.root.iterdir()] == ["logs"]
