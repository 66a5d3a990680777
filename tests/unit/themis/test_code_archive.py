"""Code that travels: what is packed, what is refused, and that tasks get the same files."""

import gzip

import pytest

from themis import code_archive
from themis.apps import CodeArchive
from themis.archives import ArchiveError
from themis.code_archive import files_in, pack_code, unpack_code
from themis.errors import InputError


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "training"
    (root / "pkg" / "__pycache__").mkdir(parents=True)
    (root / ".git").mkdir()
    for name in (".git/config", "pkg/__pycache__/a.pyc", "pkg/a.py", "run.sh", ".hidden", "events.out.tfevents.1.me"):
        (root / name).write_text(name)
    (root / "run.sh").chmod(0o755)
    return root


def test_unpacked_files_are_those_of_the_folder_without_caches_repositories_and_event_files(folder, tmp_path):
    unpack_code(pack_code({".": folder}, "g.yaml").content, tmp_path / "out")
    found = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {"pkg/a.py", "run.sh", ".hidden"}
    assert (tmp_path / "out" / "pkg" / "a.py").read_text() == "pkg/a.py"


def test_only_programs_are_executable(folder, tmp_path):
    code = pack_code({".": folder}, "g.yaml")
    unpack_code(code.content, tmp_path / "out")
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o111 == 0o100
    assert not (tmp_path / "out" / "pkg" / "a.py").stat().st_mode & 0o111
    assert files_in(code) == {".hidden": False, "pkg/a.py": False, "run.sh": True}


def test_same_files_have_the_same_hash_at_another_time(folder, tmp_path):
    first = pack_code({".": folder}, "g.yaml")
    (folder / "run.sh").touch()
    assert pack_code({".": folder}, "g.yaml") == first == CodeArchive.of(first.content)
    (folder / "run.sh").write_text("other")
    assert pack_code({".": folder}, "g.yaml").sha256 != first.sha256


def test_a_link_to_a_file_travels_as_its_content(folder):
    (folder / "link.py").symlink_to(folder / "pkg" / "a.py")
    assert "link.py" in files_in(pack_code({".": folder}, "g.yaml"))


def test_files_have_the_names_that_they_are_given(folder):
    sources = {"bin/start": folder / "run.sh", "lib": folder / "pkg", ".": folder / ".hidden"}
    assert set(files_in(pack_code(sources, "g.yaml"))) == {"bin/start", "lib/a.py", ".hidden"}


@pytest.mark.parametrize("name", ["link", "missing", "fifo", "empty", "twice"])
def test_what_cannot_travel_is_refused(folder, tmp_path, name):
    sources = {".": folder}
    if name == "link":
        (folder / "link").symlink_to(folder / "pkg")
    elif name == "missing":
        sources = {".": folder / "nothing"}
    elif name == "fifo":
        import os

        os.mkfifo(folder / "fifo")
    elif name == "empty":
        (tmp_path / "empty").mkdir()
        sources = {".": tmp_path / "empty"}
    else:
        sources = {".": folder, "run.sh": folder / ".hidden"}
    what = {
        "link": "a link to a folder",
        "missing": "no such file or folder",
        "fifo": "neither a file nor a folder",
        "empty": "no file in it",
        "twice": "two files have one name",
    }
    with pytest.raises(InputError, match=f"g.yaml: .*{what[name]}"):
        pack_code(sources, "g.yaml")


@pytest.mark.parametrize(
    ("limit", "most", "what"),
    [
        ("MAX_FILES", 2, "too many files: 3"),
        ("MAX_UNPACKED_BYTES", 20, "more than 0: '.*pkg/a.py"),
        ("MAX_PACKED_BYTES", 20, "the packed code has more"),
    ],
)
def test_code_beyond_a_limit_is_refused_with_the_way_out(folder, monkeypatch, limit, most, what):
    (folder / "pkg" / "a.py").write_text("x" * 21)
    monkeypatch.setattr(code_archive, limit, most)
    with pytest.raises(InputError, match=f"{what}.*keep it where tasks can read it"):
        pack_code({".": folder}, "g.yaml")


def test_an_archive_that_unpacks_to_more_than_the_limit_is_refused(folder, tmp_path, monkeypatch):
    content = pack_code({".": folder}, "g.yaml").content
    monkeypatch.setattr(code_archive, "MAX_UNPACKED_BYTES", 10)
    monkeypatch.setattr(code_archive, "MAX_FILES", 0)
    with pytest.raises(ArchiveError, match="too large"):
        unpack_code(content, tmp_path / "out")


def test_a_damaged_archive_is_refused(tmp_path):
    with pytest.raises(ArchiveError):
        unpack_code(gzip.compress(b"no archive" * 100), tmp_path / "out")
