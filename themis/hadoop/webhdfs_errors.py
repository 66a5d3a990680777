"""What can go wrong over WebHDFS: what passes with time, and what does not.

The names are those of the Java exceptions that NameNode and DataNodes send as a `RemoteException` (Hadoop: WebHDFS REST
API, "Error Responses"). The texts belong to exceptions that have no better name than IOException; each was met when a
daemon was killed during a transfer.
"""

from __future__ import annotations

import requests
import urllib3.exceptions
from hdfs.util import HdfsError

from themis.errors import ThemisError, UnreachableError


class HdfsRefusedError(ThemisError):
    """HDFS refused an operation, and would refuse it again."""


class HdfsMissingError(HdfsRefusedError, LookupError):
    """A file or folder that is not there."""


class HdfsExistsError(HdfsRefusedError):
    """A file or folder that should not be there yet."""


class HdfsFullError(HdfsRefusedError):
    """A quota is used up."""


class HdfsUnreachableError(UnreachableError):
    """The NameNode or a DataNode stayed unreachable for longer than the retry rule allows."""


class ShortReadError(Exception):
    """A reply ended before all of the file had come; never leaves this package."""


_TRANSIENT_NAMES = frozenset({
    "AlreadyBeingCreatedException",
    "BlockMissingException",
    "ClosedChannelException",
    "ConnectException",
    "ConnectTimeoutException",
    "EOFException",
    "NoRouteToHostException",
    "NotReplicatedYetException",
    "RecoveryInProgressException",
    "RetriableException",
    "SafeModeException",
    "SocketException",
    "SocketTimeoutException",
    "StandbyException",
})  # fmt: skip
_TRANSIENT_TEXTS = (
    "Failed to find datanode",
    "could only be written to 0",
    "Could not obtain block",
    "Broken pipe",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Unable to close file because the last block",
    "Cannot obtain block length",
    "All datanodes",
)
_TRANSIENT_KINDS = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.ProtocolError,
    ShortReadError,
    # Of a login whose NameNode is unreachable.
    UnreachableError,
)
_KINDS = {
    "FileNotFoundException": HdfsMissingError,
    "FileAlreadyExistsException": HdfsExistsError,
    "DSQuotaExceededException": HdfsFullError,
    "NSQuotaExceededException": HdfsFullError,
    "QuotaByStorageTypeExceededException": HdfsFullError,
}


class BusyGatewayError(requests.exceptions.ConnectionError):
    """An answer 502, 503 or 504: as good as none, so the next NameNode is asked like after a refused connection."""


def is_transient(error: Exception) -> bool:
    """Whether the same operation may succeed later."""
    if isinstance(error, HdfsError):
        text = _first_line(error)
        return error.exception in _TRANSIENT_NAMES or any(part in text for part in _TRANSIENT_TEXTS)
    return isinstance(error, _TRANSIENT_KINDS)


def is_ours(error: Exception) -> bool:
    """Whether an error comes from talking to HDFS at all; anything else is a defect and must not be dressed up."""
    # A reply that lacks what WebHDFS promises raises KeyError in the client.
    return isinstance(error, (HdfsError, requests.exceptions.RequestException, KeyError))


def refusal(what: str, path: str, error: Exception) -> HdfsRefusedError:
    """The typed error for one that is not transient."""
    if not isinstance(error, HdfsError):
        return HdfsRefusedError(what, value=path, remedy=f"this does not answer like WebHDFS: {error!r}")
    kind = _KINDS.get(error.exception, HdfsRefusedError)
    return kind(what, value=path, remedy=_first_line(error))


def unreachable(what: str, path: str, error: Exception, waited_s: float) -> HdfsUnreachableError:
    """The typed error for a transient one that lasted too long."""
    reason = _first_line(error) if isinstance(error, HdfsError) else _innermost(error)
    return HdfsUnreachableError(f"{what}: HDFS has been unreachable for {waited_s:.0f} s", value=path, remedy=reason)


def _first_line(error: HdfsError) -> str:
    text = error.message.decode(errors="replace") if isinstance(error.message, bytes) else str(error.message)
    return text.strip().partition("\n")[0]


def _innermost(error: BaseException) -> str:
    """The cause without the wrappings of requests and urllib3."""
    while error.__context__ is not None and error.__context__ is not error:
        error = error.__context__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
