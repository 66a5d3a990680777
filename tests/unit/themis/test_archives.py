"""Archives of files: what goes in comes out, and nothing is written elsewhere."""

import gzip
import io
import tarfile

import pytest
from capped_cases import capped_log

from themis.archives import ArchiveError, pack_files, unpack_files


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


def test_name_that_no_file_can_have_is_an_error(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("fine")
        member.pax_headers = {"path": "a\0b"}
        archive.addfile(member)
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        unpack_files(buffer.getvalue(), tmp_path / "folder")


def test_capped_file_is_packed_without_its_hole(tmp_path):
    kept = capped_log(tmp_path / "log")
    unpack_files(pack_files(tmp_path, [tmp_path / "log"]), tmp_path / "other")
    content = (tmp_path / "other/log").read_text()
    assert content.endswith("\n" + kept)
    assert len(content) < len(kept) + 100


def headers(kind: bytes, size: int) -> bytes:
    """An archive of one header with this kind and size, and a megabyte of nothing."""
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, abs(size)
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    if size < 0:
        # A negative number in base 256, and the sum over the header.
        header[124:136] = b"\xff" + (size & (1 << 88) - 1).to_bytes(11, "big")
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    return gzip.compress(bytes(header) + bytes(1_000_000))


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        (tarfile.GNUTYPE_LONGNAME, 2**30, "a header that is too large"),
        (tarfile.XHDTYPE, 2**30, "a header that is too large"),
        (tarfile.GNUTYPE_LONGNAME, -1024, "a header that is too large"),
        (tarfile.DIRTYPE + b"", 2**40, None),
        (b"Z", 2**40, "an archive is too large"),
        (tarfile.REGTYPE, 2**40, "an archive is too large"),
        (b"Z", -1024, "negative size"),
    ],
)
def test_header_of_any_size_is_neither_kept_nor_followed(kind, size, message, tmp_path):
    """Without limits the first of these would take a gigabyte of memory, and the last one for ever."""
    if message is None:
        unpack_files(headers(kind, size), tmp_path, max_bytes=10_000)
        return
    with pytest.raises(ArchiveError, match=message):
        unpack_files(headers(kind, size), tmp_path, max_bytes=10_000)


def test_sparse_file_is_skipped(tmp_path):
    """Its few bytes stand for a terabyte."""
    unpack_files(headers(tarfile.GNUTYPE_SPARSE, 0), tmp_path)
    assert not list(tmp_path.iterdir())
