"""From URIs to stores."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from am.checkpoints import open_store
from am.checkpoints.hdfs import HdfsStore
from themis.checkpoint_uri import check_checkpoint_uri, is_local, local_folder
from themis.errors import InputError


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("/a/b", "/a/b"),
        ("a/b", "a/b"),
        ("file:///a/b", "/a/b"),
        ("FILE:///a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("file:///a%20b", "/a b"),
    ],
)
def test_folders(uri, folder):
    assert local_folder(uri) == Path(folder)


@pytest.mark.parametrize("uri", ["", "s3://bucket/x", "file://elsewhere/a", "file://", "hdfs://h", "webhdfs:///a"])
def test_uris_of_no_store_are_refused(uri):
    with pytest.raises(InputError):
        open_store(uri)


@pytest.mark.parametrize("uri", ["", "/a", "file:///a", "FILE://localhost/a", "hdfs://n/a", "WebHDFS://h:9870/a"])
def test_valid_uris_are_accepted(uri):
    check_checkpoint_uri(uri)


@pytest.mark.parametrize("uri", ["a/b", "s3://b/x", "file://elsewhere/a", "file://"])
def test_invalid_uris_are_refused_with_a_remedy(uri):
    with pytest.raises(InputError, match=r"URI.*; "):
        check_checkpoint_uri(uri)


def test_an_unknown_scheme_names_the_known_ones():
    with pytest.raises(InputError, match="file:///path"):
        open_store("hdsf://x/y")


@pytest.fixture
def run_bare(tmp_path):
    """Run code with no packages but msgspec."""

    def run(code):
        (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
        command = [sys.executable, "-S", "-c", f"import sys; sys.path.append({str(tmp_path)!r}); {code}"]
        return subprocess.run(command, capture_output=True, text=True, cwd=repository())

    return run


def test_the_port_loads_no_package_but_msgspec(run_bare):
    ours = "{'__main__', 'am', 'themis'}"
    shown = run_bare(
        f"import am.checkpoints; print({{m.split('.')[0] for m in sys.modules}} - sys.stdlib_module_names - {ours})"
    )
    assert shown.stdout.strip() == "{'msgspec'}", shown.stdout + shown.stderr


@pytest.mark.parametrize("uri", ["hdfs://h:8020/a", "WebHDFS://h:9870/a"])
def test_hdfs(uri):
    assert isinstance(open_store(uri), HdfsStore)
    assert not is_local(uri)
    with pytest.raises(InputError, match="local folder"):
        local_folder(uri)


def test_hdfs_without_its_package_names_the_extra(run_bare):
    shown = run_bare("import am.checkpoints; am.checkpoints.open_store('hdfs://h/a')")
    assert shown.stderr.splitlines()[-1].endswith("pip install 'themis-scheduler[hdfs]'")


def repository() -> Path:
    return Path(__file__).parents[4]
