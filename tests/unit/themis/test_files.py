"""Files of folders that others write too: opened without following or waiting, and kept from other users."""

import os
import stat

import pytest

from am.checkpoints.folder import FolderStore
from am.journal_store import JournalError, JournalFile
from themis.errors import InputError
from themis.files import (
    add_note,
    keep_private,
    last_line,
    let_others_pass,
    lets_others_pass,
    make_private,
    names_below,
    open_below,
    open_regular,
)
from themis.processes import ProcessSpec, StartError, start


def test_a_regular_file_below_a_folder_is_opened(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_text("content")
    with os.fdopen(open_below(tmp_path, "a", "b", "c")) as file:
        assert file.read() == "content"
    assert names_below(tmp_path, "a", "b") == ["c"]
    assert names_below(tmp_path, "a", "x") == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="not the name of a file"):
        open_below(tmp_path, name)
    with pytest.raises(InputError, match="not the name of a file"):
        open_below(tmp_path, name, "x")


def test_links_pipes_and_folders_are_not_opened(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "way").symlink_to("folder")
    os.mkfifo(tmp_path / "pipe")
    for names in (("link",), ("pipe",), ("folder",), ("way", "file")):
        with pytest.raises(OSError):
            open_below(tmp_path, *names)
    assert names_below(tmp_path, "way") == []
    for name in ("link", "pipe"):
        with pytest.raises(OSError):
            open_regular(tmp_path / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def test_a_pipe_in_the_place_of_a_log_keeps_a_process_from_starting_at_once(tmp_path):
    os.mkfifo(tmp_path / "am-1.log")
    with pytest.raises(StartError, match=r"am-1\.log"):
        start(ProcessSpec(command=["true"], environment={}, working_dir=tmp_path, stdout=tmp_path / "am-1.log"))


def test_note_is_added_to_a_log_but_not_through_a_link_or_a_pipe(tmp_path):
    (tmp_path / "log").write_text("x\n")
    (tmp_path / "other").write_text("y\n")
    (tmp_path / "link").symlink_to("other")
    os.mkfifo(tmp_path / "pipe")
    for name in ("log", "new", "link", "pipe", "missing/log"):
        add_note(tmp_path / name, "killed\n")
    assert (tmp_path / "log").read_text() == "x\nkilled\n"
    assert (tmp_path / "new").read_text() == "killed\n"
    assert (tmp_path / "other").read_text() == "y\n"


def test_a_pipe_in_the_place_of_a_journal_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "journal.jsonl")
    with pytest.raises(JournalError, match="cannot open the journal"):
        JournalFile(tmp_path / "journal.jsonl")


def test_a_pipe_in_the_place_of_a_manifest_is_no_checkpoint(tmp_path):
    folder = tmp_path / "job-0/000000000005"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "manifest.json")
    assert FolderStore(tmp_path).latest("job-0") is None


def test_new_files_are_private(tmp_path):
    before = os.umask(0o022)
    try:
        keep_private()
        (tmp_path / "file").write_text("x")
        (tmp_path / "folder").mkdir()
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "folder")] == [0o600, 0o700]


def test_existing_folders_become_private_unless_linked(tmp_path):
    for name in ("apps", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    (tmp_path / "markets").symlink_to("elsewhere")
    for name in ("apps", "markets", "nothing"):
        make_private(tmp_path / name)
    assert stat.S_IMODE((tmp_path / "apps").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755


def test_folder_that_was_opened_for_passing_is_known_as_such(tmp_path):
    (tmp_path / "inside").touch(mode=0o644)
    tmp_path.chmod(0o700)
    assert not lets_others_pass(tmp_path)
    let_others_pass(tmp_path)
    assert lets_others_pass(tmp_path)
    assert stat.S_IMODE((tmp_path / "inside").stat().st_mode) == 0o600
    tmp_path.chmod(0o755)
    assert not lets_others_pass(tmp_path)


def test_last_line_of_a_log_is_the_last_one_with_text(tmp_path):
    log = tmp_path / "log"
    assert last_line(log) == ""
    log.write_bytes(b"x" * 5000 + b"\nTraceback:\n  ModuleNotFoundError: No module named 'optuna'\n\n \n")
    assert last_line(log) == "ModuleNotFoundError: No module named 'optuna'"
    log.write_bytes(b"y" * 9000)
    assert last_line(log) == "y" * 300
