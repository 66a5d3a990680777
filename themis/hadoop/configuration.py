"""Hadoop's configuration files, read without a JVM.

The rules are those of Hadoop's `Configuration` class as far as site files use them: later files override earlier ones
unless a property is final, `xi:include` takes another file in, and `${name}` in a value stands for another property, or
`${env.NAME}` for a variable of the environment. Hadoop's built-in defaults live in its jars: callers give their own.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from themis.hadoop.errors import HadoopConfigurationError

# Read in this order, as Hadoop does; any other *-site.xml comes after them, by name.
_FIRST = ("core-site.xml", "hdfs-site.xml", "mapred-site.xml", "yarn-site.xml")
_INCLUDE = "{http://www.w3.org/2001/XInclude}include"
_FALLBACK = "{http://www.w3.org/2001/XInclude}fallback"
_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_ENVIRONMENT = re.compile(r"env\.(?P<name>\w+)(?:(?P<rule>:?-)(?P<fallback>.*))?")
# Hadoop's limit too. A value that needs more is left as it is, which also ends cycles.
_MAX_SUBSTITUTIONS = 20
_MAX_INCLUDES = 20


class HadoopConfiguration:
    """Properties by name.

    Args:
        properties: Raw values, variables not yet replaced.
        environment: Where `${env.NAME}` and the user's name are looked up; this process's by default.
        conf_dir: Where the properties came from, for messages.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        environment: Mapping[str, str] | None = None,
        conf_dir: Path | None = None,
    ) -> None:
        self._properties = dict(properties)
        self._environment = os.environ if environment is None else environment
        self.conf_dir = conf_dir

    @classmethod
    def load(cls, conf_dir: Path | str, environment: Mapping[str, str] | None = None) -> HadoopConfiguration:
        """Read every `*-site.xml` of a folder (usually HADOOP_CONF_DIR).

        Raises:
            HadoopConfigurationError: No such folder, no site file in it, or a file that is no Hadoop configuration.
        """
        folder = Path(conf_dir)
        present = {path.name for path in folder.glob("*-site.xml")}
        if not present:
            raise HadoopConfigurationError(
                "no Hadoop configuration in this folder",
                value=str(folder),
                remedy="HADOOP_CONF_DIR is the folder that holds core-site.xml and yarn-site.xml",
            )
        reader = _Reader()
        for name in [*(name for name in _FIRST if name in present), *sorted(present - set(_FIRST))]:
            reader.read(folder / name)
        return cls(reader.properties, environment=environment, conf_dir=folder)

    @classmethod
    def read(cls, path: Path, environment: Mapping[str, str] | None = None) -> HadoopConfiguration:
        """Read one file. Raises HadoopConfigurationError when it is no Hadoop configuration."""
        reader = _Reader()
        reader.read(path)
        return cls(reader.properties, environment=environment, conf_dir=path.parent)

    def get(self, name: str, default: str = "") -> str:
        """The value of a property with its variables replaced, or `default` where it is not set."""
        raw = self._properties.get(name)
        return default if raw is None else self._replace(raw.strip())

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def names(self) -> tuple[str, ...]:
        """Names of all properties that the files set, sorted."""
        return tuple(sorted(self._properties))

    def _replace(self, value: str) -> str:
        replaced = value
        for _ in range(_MAX_SUBSTITUTIONS):
            found = next(
                (match for match in _VARIABLE.finditer(replaced) if self._variable(match[1]) is not None), None
            )
            if found is None:
                return replaced
            replaced = replaced[: found.start()] + str(self._variable(found[1])) + replaced[found.end() :]
        return value

    def _variable(self, name: str) -> str | None:
        if name == "user.name":
            return self._environment.get("HADOOP_USER_NAME") or getpass.getuser()
        if name == "user.home":
            return self._environment.get("HOME")
        if match := _ENVIRONMENT.fullmatch(name):
            value = self._environment.get(match["name"])
            # As in a shell: `:-` also replaces an empty value, `-` only an absent one.
            absent = not value if match["rule"] == ":-" else value is None
            return match["fallback"] if absent else value
        return self._properties.get(name)


class _Reader:
    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self._final: set[str] = set()

    def read(self, path: Path, depth: int = 0) -> None:
        if depth > _MAX_INCLUDES:
            raise HadoopConfigurationError("Hadoop configuration files include each other", value=str(path))
        self._take(_root(path), path, depth)

    def _take(self, root: ElementTree.Element, path: Path, depth: int) -> None:
        for element in root:
            if element.tag == "property":
                self._set(element, path)
            elif element.tag == _INCLUDE:
                self._include(element, path, depth)
            elif element.tag == "configuration":
                self._take(element, path, depth)

    def _include(self, element: ElementTree.Element, path: Path, depth: int) -> None:
        included = path.parent / element.get("href", "").removeprefix("file://")
        fallback = element.find(_FALLBACK)
        try:
            present = included.is_file()
        except OSError:
            # No file can have this name.
            present = False
        if not present and fallback is not None:
            self._take(fallback, path, depth)
        else:
            self.read(included, depth + 1)

    def _set(self, element: ElementTree.Element, path: Path) -> None:
        name = _field(element, "name")
        if not name:
            raise HadoopConfigurationError("a property without a name", value=str(path))
        value = _field(element, "value")
        if value is None or name in self._final:
            return
        self.properties[name] = value
        if (_field(element, "final") or "").lower() == "true":
            self._final.add(name)


def _field(element: ElementTree.Element, name: str) -> str | None:
    """A field of a property, written as an element or as an attribute; None when it has none."""
    child = element.find(name)
    if child is None:
        return element.get(name)
    text = child.text or ""
    return text.strip() if name != "value" else text


def _root(path: Path) -> ElementTree.Element:
    try:
        root = ElementTree.parse(path).getroot()
    except OSError as error:
        raise HadoopConfigurationError(
            "a Hadoop configuration file cannot be read", value=str(path), remedy=error.strerror or ""
        ) from error
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise HadoopConfigurationError(
            "a Hadoop configuration file is not XML", value=str(path), remedy=f"see {error}"
        ) from error
    if root.tag != "configuration":
        raise HadoopConfigurationError(
            "a Hadoop configuration file must begin with <configuration>",
            value=str(path),
            remedy=f"it has <{root.tag}>",
        )
    return root
