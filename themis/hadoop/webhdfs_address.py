"""From an `hdfs://` or `webhdfs://` URI and Hadoop's configuration to the NameNodes' HTTP addresses and a path."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping

from themis.errors import InputError
from themis.hadoop.configuration import HadoopConfiguration
from themis.hadoop.errors import HadoopConfigurationError
from themis.number_parsing import as_whole
from themis.values import Value

SCHEMES = ("hdfs", "webhdfs")
KNOWN = "hdfs://nameservice-or-host[:port]/path, webhdfs://host:port/path"
DEFAULT_HTTP_PORT = 9870
"""Of a NameNode since Hadoop 3 (hdfs-default.xml, dfs.namenode.http-address)."""

_ANY_HOST = ("0.0.0.0", "::", "[::]", "")


class HdfsPlace(Value, frozen=True, kw_only=True):
    """A folder or file of an HDFS.

    Attributes:
        urls: `http://host:port` of each of its NameNodes; the active one is found by asking.
        path: Absolute, without a slash at the end.
        service: The authority as Hadoop names it, by which its tokens are found; empty for `webhdfs://`.
    """

    urls: tuple[str, ...]
    path: str
    service: str = ""

    @property
    def file_system(self) -> str:
        """URI of the file system, as Hadoop's own classes take it."""
        return f"hdfs://{self.service}" if self.service else f"webhdfs://{self.urls[0].partition('://')[2]}"


def configuration_of(environment: Mapping[str, str] = os.environ) -> HadoopConfiguration:
    """Hadoop's configuration by HADOOP_CONF_DIR; an empty one where that is not set."""
    folder = environment.get("HADOOP_CONF_DIR")
    return HadoopConfiguration.load(folder) if folder else HadoopConfiguration({})


def user_name(environment: Mapping[str, str] = os.environ) -> str:
    """Who we are to a Hadoop without Kerberos: HADOOP_USER_NAME, else the login name."""
    return environment.get("HADOOP_USER_NAME") or getpass.getuser()


def resolve(uri: str, configuration: HadoopConfiguration) -> HdfsPlace:
    """Where `uri` points.

    Raises:
        InputError: Another scheme, no absolute path, or a port that is none.
        HadoopConfigurationError: A NameNode's address that the configuration should hold and does not.
    """
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    if scheme.lower() not in SCHEMES or not slash:
        raise InputError("not an HDFS URI", value=uri, remedy=f"known: {KNOWN}")
    path = _clean(path, uri)
    if scheme.lower() == "webhdfs":
        if not authority:
            raise InputError("a webhdfs URI must name the NameNode", value=uri, remedy=f"known: {KNOWN}")
        return HdfsPlace(urls=(_url(authority, uri),), path=path)
    service = authority or _default_service(configuration, uri)
    return HdfsPlace(urls=_name_nodes(service, configuration, uri), path=path, service=service)


def _clean(path: str, uri: str) -> str:
    parts = [part for part in path.split("/") if part]
    # The client library gives '#LATEST' a meaning of its own, and '..' would leave the folder that was named.
    if not parts or any(part in (".", "..") or "#LATEST" in part or "\0" in part for part in parts):
        raise InputError("unusable path in an HDFS URI", value=uri, remedy="name a folder below the root, without '..'")
    return "/" + "/".join(parts)


def _default_service(configuration: HadoopConfiguration, uri: str) -> str:
    default = configuration.get("fs.defaultFS")
    scheme, _, rest = default.partition("://")
    service = rest.partition("/")[0]
    if scheme != "hdfs" or not service:
        raise HadoopConfigurationError(
            "fs.defaultFS names no HDFS, and neither does the URI",
            value=uri,
            remedy="name the NameNode in the URI, or set HADOOP_CONF_DIR to a folder whose core-site.xml does",
        )
    return service


def _name_nodes(service: str, configuration: HadoopConfiguration, uri: str) -> tuple[str, ...]:
    names = [name.strip() for name in configuration.get(f"dfs.ha.namenodes.{service}").split(",")]
    if any(names):
        return tuple(_of_service(f"{service}.{name}", configuration, uri) for name in names if name)
    if service in (name.strip() for name in configuration.get("dfs.nameservices").split(",")):
        return (_of_service(service, configuration, uri),)
    host = _split(service)[0]
    written = configuration.get("dfs.namenode.http-address")
    if written and service in _own_addresses(configuration):
        return (_url(written, uri, host=host),)
    return (_url(host, uri),)


def _own_addresses(configuration: HadoopConfiguration) -> tuple[str, ...]:
    """The authorities that mean the one NameNode that this configuration is about."""
    default = configuration.get("fs.defaultFS").partition("://")[2].partition("/")[0]
    return (default, default.partition(":")[0], configuration.get("dfs.namenode.rpc-address"))


def _of_service(suffix: str, configuration: HadoopConfiguration, uri: str) -> str:
    written = configuration.get(f"dfs.namenode.http-address.{suffix}")
    rpc = configuration.get(f"dfs.namenode.rpc-address.{suffix}")
    if not written and not rpc:
        raise HadoopConfigurationError(
            "no HTTP address of a NameNode",
            value=f"dfs.namenode.http-address.{suffix}",
            remedy=f"set it in hdfs-site.xml in HADOOP_CONF_DIR, or write webhdfs://host:port in place of {uri}",
        )
    host = _split(rpc)[0] if rpc else ""
    return _url(written or host, uri, host=host)


def _url(address: str, uri: str, *, host: str = "") -> str:
    """The URL of an address; `host` is put in where the address binds to every interface."""
    own, port = _split(address)
    shown = host if own in _ANY_HOST else own
    if not shown:
        raise InputError("no host of a NameNode", value=address, remedy=f"write webhdfs://host:port in place of {uri}")
    return f"http://{shown}:{port or DEFAULT_HTTP_PORT}"


def _split(address: str) -> tuple[str, int | None]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        return address, None
    number = as_whole(port) or 0
    if not 0 < number < 65536:
        raise InputError("no such port in an HDFS address", value=address, remedy=f"known: {KNOWN}")
    return host, number
