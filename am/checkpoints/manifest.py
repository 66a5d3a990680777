"""The manifest of a checkpoint folder: which files it has to hold, and whether it does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from am.checkpoints.store import MANIFEST_NAME, Checkpoint, FileRecord, Meta
from themis.files import open_regular

CHUNK_BYTES = 1 << 20
FORMAT = 1


def encode(job_id: str, iteration: int, files: tuple[FileRecord, ...], meta: Meta) -> bytes:
    """The manifest as JSON bytes, ending in a newline."""
    body = {
        "format": FORMAT,
        "job_id": job_id,
        "iteration": iteration,
        "files": [{"name": f.name, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in files],
        "meta": dict(meta),
    }
    return json.dumps(body, indent=1).encode() + b"\n"


def decode(content: bytes, location: str) -> Checkpoint | None:
    """The checkpoint that a manifest describes, or None where it is truncated or malformed."""
    try:
        body = json.loads(content)
        if body["format"] != FORMAT or not body["files"]:
            return None
        files = tuple(
            FileRecord(name=str(f["name"]), size_bytes=int(f["size_bytes"]), sha256=str(f["sha256"]))
            for f in body["files"]
        )
        return Checkpoint(
            job_id=str(body["job_id"]),
            iteration=int(body["iteration"]),
            files=files,
            meta=dict(body["meta"]),
            location=location,
        )
    except (ValueError, KeyError, TypeError):
        return None


def read_folder(folder: Path) -> Checkpoint | None:
    """The checkpoint in `folder` by its manifest and file sizes, contents unread; None where it is not whole."""
    try:
        checkpoint = decode(_manifest(folder), str(folder))
        if checkpoint is None or f"{checkpoint.iteration:012d}" != folder.name:
            return None
        whole = all((folder / f.name).stat().st_size == f.size_bytes for f in checkpoint.files)
    except OSError:
        return None
    return checkpoint if whole else None


def _manifest(folder: Path) -> bytes:
    # Programs write beside it: a pipe in its place would be waited for.
    with os.fdopen(open_regular(folder / MANIFEST_NAME, os.O_RDONLY), "rb") as stream:
        return stream.read()


def verified_folder(folder: Path) -> Checkpoint | None:
    """The checkpoint in `folder` with every checksum verified; None where any differs."""
    checkpoint = read_folder(folder)
    if checkpoint is None:
        return None
    try:
        whole = all(file_sha256(folder / f.name) == f.sha256 for f in checkpoint.files)
    except OSError:
        return None
    return checkpoint if whole else None


def chunks(path: Path) -> Iterator[bytes]:
    """The content of a file in pieces of at most CHUNK_BYTES."""
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file's content."""
    digest = hashlib.sha256()
    for chunk in chunks(path):
        digest.update(chunk)
    return digest.hexdigest()
