"""Turn Java's exceptions into our errors, by the class of the first known cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jpype

from themis.errors import ThemisError, UnreachableError
from themis.hadoop.errors import (
    AttemptGoneError,
    ContainerStateError,
    LoginError,
    ResourceAskError,
    UnknownYarnAppError,
    YarnError,
)
from themis.values import Value

_MAX_CAUSES = 12
# A message of Hadoop's may hold a whole stack trace.
_MAX_MESSAGE = 500


class Meaning(Value, frozen=True):
    """What an exception of Java's is to us."""

    kind: type[ThemisError]
    what: str
    remedy: str = ""


ATTEMPT_GONE = Meaning(AttemptGoneError, "YARN has given up this attempt of the app master", "end its work and exit")
_UNREACHABLE = Meaning(UnreachableError, "Hadoop does not answer", "is it running, and is HADOOP_CONF_DIR its own?")
_UNKNOWN = Meaning(
    UnknownYarnAppError, "YARN does not know it", "it may have been forgotten: YARN keeps a limited number"
)
_ASK = Meaning(
    ResourceAskError, "no node can ever fill this ask", "ask for less, or see `yarn.scheduler.maximum-allocation-*`"
)
NODE_REFUSES_TOKEN = Meaning(
    ContainerStateError,
    "the NodeManager does not accept our token for this container",
    "it may have been started again; wait for the container's end",
)
_LOGIN = Meaning(
    LoginError,
    "Hadoop does not accept our credentials",
    "set THEMIS_HADOOP_KEYTAB and THEMIS_HADOOP_PRINCIPAL, or run kinit",
)
_DENIED = Meaning(YarnError, "Hadoop refuses this to our user", "see the queue's and the application's access lists")

# By the class's name without its package.
_MEANINGS = {
    "ApplicationAttemptNotFoundException": ATTEMPT_GONE,
    "InvalidResourceRequestException": _ASK,
    "InvalidContainerRequestException": Meaning(ResourceAskError, "YARN's client refuses this ask"),
    "ResourceNotFoundException": Meaning(ResourceAskError, "YARN's client does not know this resource"),
    "ApplicationNotFoundException": _UNKNOWN,
    "ContainerNotFoundException": _UNKNOWN,
    "InvalidContainerException": Meaning(ContainerStateError, "the NodeManager does not take this container"),
    "NMNotYetReadyException": Meaning(UnreachableError, "the NodeManager is not ready yet", "try again"),
    "AccessControlException": _LOGIN,
    "KerberosAuthException": _LOGIN,
    "LoginException": _LOGIN,
    "SaslException": _LOGIN,
    "AuthorizationException": _DENIED,
    "ConnectException": _UNREACHABLE,
    "NoRouteToHostException": _UNREACHABLE,
    "UnknownHostException": _UNREACHABLE,
    "SocketTimeoutException": _UNREACHABLE,
    "ConnectTimeoutException": _UNREACHABLE,
    "SocketException": _UNREACHABLE,
    "EOFException": _UNREACHABLE,
    "ClosedChannelException": _UNREACHABLE,
    "AsynchronousCloseException": _UNREACHABLE,
    "StandbyException": _UNREACHABLE,
    "RetriableException": _UNREACHABLE,
    "InterruptedIOException": _UNREACHABLE,
}
# What Java's channels say, in an exception without a class of its own, if the other side dies during a call.
_BROKEN_CONNECTIONS = frozenset({"Broken pipe", "Connection reset", "Connection reset by peer", "Connection timed out"})


@contextmanager
def typed_errors(doing: str, value: object = None, *, bad_token: Meaning = _LOGIN) -> Iterator[None]:
    """Turn an exception of Java's that leaves the block into a ThemisError.

    Args:
        doing: What was tried, for the message: "submitting an application".
        value: What it was tried with.
        bad_token: What it means that our token is not known, which depends on whose it is.
    """
    try:
        yield
    except jpype.JException as error:
        raise as_typed(error, doing, value, bad_token=bad_token) from error


def as_typed(error: jpype.JException, doing: str, value: object = None, *, bad_token: Meaning = _LOGIN) -> ThemisError:
    """The error of ours that says what an exception of Java's means; arguments as of `typed_errors`."""
    chain = list(causes(error))
    for cause in chain:
        if meaning := _meaning(cause, bad_token):
            what = f"{meaning.what} ({doing})"
            remedy = "; ".join(part for part in (meaning.remedy, f"it said: {_message(cause)}") if part)
            return meaning.kind(what, value=value, remedy=remedy)
    return YarnError(f"Hadoop refused ({doing})", value=value, remedy=f"it said: {_message(chain[0])}")


def causes(error: jpype.JException) -> Iterator[jpype.JException]:
    """An exception, its cause, that one's cause and so on."""
    cause = error
    for _ in range(_MAX_CAUSES):
        yield cause
        cause = cause.getCause()
        if cause is None:
            return


def _meaning(cause: jpype.JException, bad_token: Meaning) -> Meaning | None:
    name = _simple_name(cause)
    if name == "SecretManager$InvalidToken":
        return bad_token
    if name == "IOException" and str(cause.getMessage()) in _BROKEN_CONNECTIONS:
        return _UNREACHABLE
    return _MEANINGS.get(name)


def _simple_name(error: jpype.JException) -> str:
    return str(error.getClass().getName()).rsplit(".", 1)[-1]


def _message(error: jpype.JException) -> str:
    text = str(error.getMessage() or "").strip()
    first = text.splitlines()[0][:_MAX_MESSAGE] if text else "nothing"
    return f"{_simple_name(error)}: {first}"
