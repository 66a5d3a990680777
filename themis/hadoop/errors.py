"""What can go wrong between us and Hadoop, as typed errors."""

from __future__ import annotations

from themis.errors import InputError, MissingHereError, ThemisError


class HadoopMissingError(ThemisError):
    """Neither an installed Hadoop nor its jars, or no Java to run them."""

    exit_code = 2


class HadoopConfigurationError(MissingHereError):
    """A configuration folder or file of Hadoop's that cannot be read or lacks something."""


class JvmError(ThemisError):
    """The JVM inside this process does not start, or was started with other settings."""


class YarnError(ThemisError):
    """YARN refused something, and no more telling error of ours fits."""


class ResourceAskError(YarnError, InputError):
    """An ask that no node of the cluster can ever fill, or that names an unknown resource."""

    exit_code = 2


class UnknownYarnAppError(YarnError, InputError):
    """YARN does not know this application, attempt or container (any more)."""

    exit_code = 2


class AttemptGoneError(YarnError):
    """YARN has given up this attempt of the app master: it must end its work and exit.

    A later attempt may live already and own the containers, so nothing may be stopped or released on the way out.
    """


class ContainerStateError(YarnError):
    """A NodeManager does not start or stop this container in the state that it is in."""


class LoginError(ThemisError):
    """Kerberos credentials or tokens that are missing, unreadable or not accepted."""

    exit_code = 2
