"""The folder of a cluster: create it, lock it while the cluster changes, remove it."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from themis.errors import InputError
from themis_lab.devcluster.layout import Layout


def check_free(layout: Layout) -> None:
    """Check that the folder holds nothing but logs of an earlier cluster.

    Raises:
        InputError: A cluster runs in it, or it holds something that is none of ours.
    """
    shown = str(layout.root)
    if layout.state.exists():
        remedy = "stop it first: themis devcluster stop --dir DIR; or name another folder with --dir"
        raise InputError("a development cluster is in this folder already", value=shown, remedy=remedy)
    if layout.root.exists() and not layout.root.is_dir():
        raise InputError("the cluster's folder is a file", value=shown, remedy="name another with --dir")
    ours = {layout.logs, layout.lock}
    if layout.root.is_dir() and not ours.issuperset(layout.root.iterdir()):
        remedy = "it holds something else and is left alone; name another with --dir"
        raise InputError("the cluster's folder is in use", value=shown, remedy=remedy)


def make_folders(layout: Layout, files: Mapping[str, str], scripts: Mapping[str, str]) -> None:
    """Make the folders that daemons expect, the configuration files, and the commands (texts by file name)."""
    shutil.rmtree(layout.logs, ignore_errors=True)
    for folder in (layout.data, layout.logs, layout.nodes, layout.temporary, layout.bin):
        folder.mkdir(parents=True)
    for component in ("hdfs", "datanode"):
        # NameNode and DataNode look for the folder of their web pages on the class path and end without one.
        (layout.conf / "webapps" / component).mkdir(parents=True)
    for name, text in files.items():
        (layout.conf / name).write_text(text, encoding="utf-8")
    for name, text in scripts.items():
        (layout.bin / name).write_text(text, encoding="utf-8")
        (layout.bin / name).chmod(0o755)


def remove(layout: Layout, *, keep_logs: bool) -> None:
    """Remove everything in the folder, the state last, and the folder itself unless logs stay."""
    kept = {layout.logs} if keep_logs else set[Path]()
    for path in sorted(layout.root.iterdir(), key=lambda path: path == layout.state):
        if path in kept:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not keep_logs:
        layout.root.rmdir()


@contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Prevent others from starting or stopping a cluster in the folder, which is created if missing.

    Raises:
        InputError: Another process has the lock, or the folder cannot be made.
    """
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "cannot make the cluster's folder", value=str(layout.root), remedy=error.strerror or ""
        ) from None
    with layout.lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "wait until that is done"
            raise InputError(
                "this cluster is being started or stopped", value=str(layout.root), remedy=remedy
            ) from None
        yield
