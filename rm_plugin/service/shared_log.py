"""The log in a shared folder from which a standby restores the state of a ResourceManager that died.

Every write of the store is a record with the next position: the file `record-POSITION`. A file is created in one step
by one process only, so all processes agree on the record of each position. A snapshot of the store replaces the records
before it.

A start *claims* the log: it creates a record without content at the end. A former writer that still runs does not know
this record. Its next one would have the same position, so it is refused, and so are all later ones. No clock decides
this.

    record-7  A: grant GPU 0 to app-1
    record-8  B: claim               B read records 1 to 7
    record-8  A: grant GPU 1 to app-2    refused: the file exists, A has lost the log

A write may fail without an answer: the record may exist or not. The writer then has to undo the change, as after any
failed write. If its next try finds the record, it goes on after it and declares it void.
"""

from __future__ import annotations

import re
import uuid
import zlib
from concurrent.futures import ThreadPoolExecutor

import msgspec

from rm_plugin.engines.shared_folder import SharedFolder
from rm_plugin.service.store import StoreError
from themis.errors import ThemisError
from themis.values import Value

SNAPSHOT_EVERY = 500
"""After how many records a snapshot is due."""
KEPT_CLAIMS = 100
"""Number of claims of which the files are kept, so that former writers are refused."""
_READERS = 8
_NAME = re.compile(r"(record|snapshot)-(\d{12})")


class LogLostError(StoreError):
    """Another ResourceManager has claimed the log. This one can write no more."""


class Record(Value, frozen=True, kw_only=True):
    """One record.

    Attributes:
        writer: The process, by a token.
        key: Distinguishes the record from all others, so that its writer recognises it.
        void: Positions of the writer's former records that do not count.
        content: What was written; empty for a claim.
    """

    writer: str
    key: str
    void: tuple[int, ...] = ()
    content: bytes = b""


class LoadedLog(Value, frozen=True, kw_only=True):
    """The state in the folder: the newest snapshot, None if there is none yet, and the contents after it, in order."""

    snapshot: bytes | None
    contents: tuple[tuple[int, bytes], ...]


class SharedLog:
    """The log of one folder, for one process. Its methods block. `append` and `forgo` are for one thread at a time.

    Args:
        folder: May have other files, too.
    """

    def __init__(self, folder: SharedFolder) -> None:
        self.place = folder.place
        self._folder = folder
        self._writer = uuid.uuid4().hex
        self._position = 0
        self._void: list[int] = []
        self._claims: set[int] = set()
        self._is_lost = False

    def claim(self) -> LoadedLog:
        """Refuse all former writers, and return what they wrote. Call it once, before anything else.

        Raises:
            UnreachableError: The folder is unavailable.
            StoreError: Records are missing or damaged.
        """
        claim = Record(writer=self._writer, key=uuid.uuid4().hex)
        while True:
            position = max(self._positions("record", "snapshot"), default=0) + 1
            # The last writer may be faster. Then its record counts, and the claim tries the next position.
            if self._folder.create(_name("record", position), _encoded(claim)) or self._is_at(position, claim):
                break
        self._position = position + 1
        self._folder.tidy()
        while (loaded := self._load(position)) is None:
            # The former writer, still at work, has put a newer snapshot in place of what was being read.
            pass
        return loaded

    @property
    def end(self) -> int:
        """The position of this process's last record."""
        return self._position - 1

    def append(self, content: bytes) -> int:
        """Write a record, and return its position.

        Raises:
            LogLostError: Another process has claimed the log.
            StoreError: The folder is unavailable. The change does not count, whether the record was written or not.
        """
        if self._is_lost:
            raise LogLostError("another ResourceManager has claimed the shared state", value=self.place)
        key = uuid.uuid4().hex
        while True:
            record = Record(writer=self._writer, key=key, void=tuple(self._void), content=content)
            try:
                created = self._folder.create(_name("record", self._position), _encoded(record))
                other = None if created else self._read(self._position)
            except ThemisError as error:
                raise StoreError(f"the shared state cannot be written ({error})", value=self.place) from error
            if other is not None and other.writer != self._writer:
                self._is_lost = True
                raise LogLostError("another ResourceManager has claimed the shared state", value=self.place)
            written, self._position = self._position, self._position + 1
            if other is None or other.key == key:
                self._void.clear()
                return written
            # An earlier try, of which the answer was lost.
            self._void.append(written)

    def forgo(self, position: int) -> None:
        """Declare a record void, because the change could not be made after all. The next record says so."""
        self._void.append(position)

    def put_snapshot(self, content: bytes, position: int) -> None:
        """Write a snapshot that includes all records up to a position, and remove what it replaces.

        Raises:
            UnreachableError: The folder is unavailable.
        """
        former = max(self._positions("snapshot"), default=0)
        if former >= position:
            return
        self._folder.create(_name("snapshot", position), zlib.compress(content, 1))
        records = sorted(self._positions("record"))
        # Former clean-ups left these: claims, and the record before each, since its writer may not know that it exists.
        left = [each for each in records if each <= former]
        replaced = [each for each in records if former < each <= position]
        gone = [each for each in replaced if each not in self._claims and each + 1 not in self._claims]
        for each in (*left[: -2 * KEPT_CLAIMS], *gone):
            self._folder.delete(_name("record", each))
        for each in self._positions("snapshot"):
            if each < position:
                self._folder.delete(_name("snapshot", each))

    # ---- inside ----

    def _load(self, end: int) -> LoadedLog | None:
        """Return the state up to a position, or None if files vanished because there is a newer snapshot."""
        begin = max(self._positions("snapshot"), default=0)
        try:
            snapshot = self._snapshot(begin) if begin else None
            with ThreadPoolExecutor(_READERS, thread_name_prefix="shared-log") as readers:
                records = list(readers.map(self._read, range(begin + 1, end + 1)))
        except StoreError:
            if max(self._positions("snapshot"), default=0) != begin:
                return None
            raise
        void = {position for record in records for position in record.void}
        numbered = list(enumerate(records, begin + 1))
        self._claims = {position for position, record in numbered if not record.content}
        counted = [(position, record) for position, record in numbered if position not in void]
        contents = [(position, record.content) for position, record in counted if record.content]
        if snapshot is None and contents:
            raise StoreError("the shared state has no snapshot", value=self.place, remedy=_REMEDY)
        return LoadedLog(snapshot=snapshot, contents=tuple(contents))

    def _snapshot(self, position: int) -> bytes:
        packed = self._folder.read(_name("snapshot", position))
        try:
            return zlib.decompress(packed or b"")
        except zlib.error as error:
            message = f"snapshot {position} of the shared state is missing or damaged ({error})"
            raise StoreError(message, value=self.place, remedy=_REMEDY) from error

    def _read(self, position: int) -> Record:
        packed = self._folder.read(_name("record", position))
        if packed is None:
            raise StoreError(f"record {position} of the shared state is missing", value=self.place, remedy=_REMEDY)
        try:
            return msgspec.msgpack.decode(packed, type=Record)
        except msgspec.DecodeError as error:
            message = f"record {position} of the shared state is damaged ({error})"
            raise StoreError(message, value=self.place, remedy=_REMEDY) from error

    def _is_at(self, position: int, record: Record) -> bool:
        return self._read(position) == record

    def _positions(self, *kinds: str) -> list[int]:
        matches = [_NAME.fullmatch(file.name) for file in self._folder.list()]
        return [int(match[2]) for match in matches if match and match[1] in kinds]


_REMEDY = "restore the folder, or empty it and start where the newest rm.sqlite lies"


def _name(kind: str, position: int) -> str:
    return f"{kind}-{position:012d}"


def _encoded(record: Record) -> bytes:
    return msgspec.msgpack.encode(record)
