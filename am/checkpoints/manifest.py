"""The manifest of a checkpoint folder: it lists the files, and readers check the folder against it.

Example: the folder `j0/000000000120` holds `model.keras` and this `manifest.json`:

    {"format": 1, "job_id": "j0", "iteration": 120,
     "files": [{"name": "model.keras", "size_bytes": 18544, "sha256": "9f86d0.."}], "meta": {"loss": 0.31}}

`read_folder` compares the iteration with the folder's name, and the sizes of the files. `verified_folder` also computes
the checksums. A folder without a manifest, or with a truncated one, is not a checkpoint.
"""

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
    """Encode the manifest as JSON bytes with a final newline."""
    body = {
        "format": FORMAT,
        "job_id": job_id,
        "iteration": iteration,
        "files": [{"name": f.name, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in files],
        "meta": dict(meta),
    }
    return json.dumps(body, indent=1).encode() + b"\n"


def decode(content: bytes, location: str) -> Checkpoint | None:
    """Decode a manifest. Returns None if it is truncated or malformed."""
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
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def read_folder(folder: Path) -> Checkpoint | None:
    """Read the checkpoint in `folder` from its manifest and file sizes. Returns None if it is incomplete."""
    try:
        checkpoint = decode(_manifest(folder), str(folder))
        if checkpoint is None or f"{checkpoint.iteration:012d}" != folder.name:
            return None
        whole = all((folder / f.name).stat().st_size == f.size_bytes for f in checkpoint.files)
    except OSError:
        return None
    return checkpoint if whole else None


def _manifest(folder: Path) -> bytes:
    # Users' programs may write here, and reading a pipe in the manifest's place would block.
    with os.fdopen(open_regular(folder / MANIFEST_NAME, os.O_RDONLY), "rb") as stream:
        return stream.read()


def verified_folder(folder: Path) -> Checkpoint | None:
    """Read the checkpoint in `folder`, and verify all checksums. Returns None if one differs."""
    checkpoint = read_folder(folder)
    if checkpoint is None:
        return None
    try:
        whole = all(file_sha256(folder / f.name) == f.sha256 for f in checkpoint.files)
    except OSError:
        return None
    return checkpoint if whole else None


def chunks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in pieces of at most CHUNK_BYTES."""
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file's content."""
    digest = hashlib.sha256()
    for chunk in chunks(path):
        digest.update(chunk)
    return digest.hexdigest()
