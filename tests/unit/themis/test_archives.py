"""Archives of files: what goes in comes out, and nothing is written elsewhere."""

import io
import tarfile

from capped_cases import capped_log

from themis.archives import pack_files, unpack_files


def test_packed_files_are_unpacked_unchanged(tmp_path):
    folder = tmp_path / "one"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/c").write_bytes(b"\0\xff")
    (folder / "d").write_bytes(b"")
    content = pack_files(folder, [folder / "a/b/c", folder / "d"])
    unpack_files(content, tmp_path / "two")
    assert (tmp_path / "two/a/b/c").read_bytes() == b"\0\xff"
    assert (tmp_path / "two/d").read_bytes() == b""


def test_existing_files_are_replaced(tmp_path):
    (tmp_path / "a").write_bytes(b"new")
    content = pack_files(tmp_path, [tmp_path / "a"])
    (tmp_path / "a").write_bytes(b"older and longer")
    unpack_files(content, tmp_path)
    assert (tmp_path / "a").read_bytes() == b"new"


def test_links_and_names_that_lead_outside_are_skipped(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("../out", "/tmp/themis-out", "in/../../out", "fine"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    folder = tmp_path / "folder"
    unpack_files(buffer.getvalue(), folder)
    assert [path.name for path in folder.rglob("*")] == ["fine"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_capped_file_is_packed_without_its_hole(tmp_path):
    kept = capped_log(tmp_path / "log")
    unpack_files(pack_files(tmp_path, [tmp_path / "log"]), tmp_path / "other")
    content = (tmp_path / "other/log").read_text()
    assert content.endswith("\n" + kept)
    assert len(content) < len(kept) + 100
