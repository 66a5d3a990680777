"""Where the JVM finds Hadoop's classes and configuration.

In this order: a folder of ours (log settings; resource types, where the site's do not name GPUs), the configuration
folder, and the jars. Jars come from THEMIS_HADOOP_JARS if it is set, else from the installed Hadoop's own
`hadoop classpath --glob`, else from the folder of `themis.hadoop.jars`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from themis.hadoop.configuration import HadoopConfiguration
from themis.hadoop.errors import HadoopConfigurationError, HadoopMissingError
from themis.hadoop.jars import JARS_VARIABLE, jar_folder

GPU_VARIABLE = "THEMIS_HADOOP_GPU_RESOURCE"
_GPU = "yarn.io/gpu"
_RESOURCE_TYPES = "yarn.resource-types"
_CLASSPATH_TIMEOUT_S = 60.0
# Log to standard error, as Python does. Leave out two harmless warnings: the missing native library at every start, and
# interrupted threads at the end, when JPype interrupts all threads of Java.
_LOG4J = """\
log4j.rootLogger=WARN,stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
log4j.logger.org.apache.hadoop.util.ShutdownHookManager=ERROR
"""


def gpu_resource(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of YARN's resource for GPUs: that of the variable, else YARN's own."""
    return environment.get(GPU_VARIABLE) or _GPU


def configuration_folder(environment: Mapping[str, str]) -> Path:
    """The cluster's configuration: HADOOP_CONF_DIR, else YARN_CONF_DIR, else `etc/hadoop` of HADOOP_HOME.

    Raises:
        HadoopConfigurationError: None is set, or it is no folder.
    """
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        if value := environment.get(variable):
            if not Path(value).is_dir():
                raise HadoopConfigurationError(f"{variable} is no folder", value=value)
            return Path(value)
    installed = Path(environment.get("HADOOP_HOME", "")) / "etc" / "hadoop"
    if environment.get("HADOOP_HOME") and installed.is_dir():
        return installed
    raise HadoopConfigurationError(
        "no configuration of a Hadoop cluster",
        remedy="set HADOOP_CONF_DIR to the folder that holds its core-site.xml and yarn-site.xml",
    )


def client_class_path(environment: Mapping[str, str], own_folder: Path) -> tuple[str, ...]:
    """Class path entries for a client of the cluster that `environment` names.

    Args:
        environment: HADOOP_CONF_DIR, and what finds the jars.
        own_folder: An empty folder, where files of ours are put.

    Raises:
        HadoopConfigurationError: No usable configuration.
        HadoopMissingError: No jars.
    """
    conf_dir = configuration_folder(environment)
    configuration = HadoopConfiguration.load(conf_dir, environment)
    (own_folder / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    _name_gpus(configuration, conf_dir, own_folder, gpu_resource(environment))
    return (str(own_folder), str(conf_dir), *_jars(environment))


def named_jar_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the jars, or None if an installed Hadoop names its own. Raises HadoopMissingError."""
    if folder := environment.get(JARS_VARIABLE):
        return Path(folder)
    return None if _hadoop_command(environment) else jar_folder()


def _jars(environment: Mapping[str, str]) -> tuple[str, ...]:
    if folder := named_jar_folder(environment):
        return jars_in(folder)
    command = _hadoop_command(environment)
    assert command is not None
    return _classpath_of(command, environment)


def jars_in(folder: Path) -> tuple[str, ...]:
    """All jars of a folder, sorted. Raises HadoopMissingError when YARN's client is not among them."""
    jars = sorted(str(path) for path in folder.glob("*.jar"))
    if not any(Path(jar).name.startswith(("hadoop-yarn-client", "hadoop-client-runtime")) for jar in jars):
        raise HadoopMissingError(
            "no jar of YARN's client (hadoop-yarn-client-*.jar) in this folder",
            value=str(folder),
            remedy=f"set {JARS_VARIABLE} to a folder that has Hadoop's jars, or HADOOP_HOME to an installed Hadoop",
        )
    return tuple(jars)


def _hadoop_command(environment: Mapping[str, str]) -> str | None:
    home = environment.get("HADOOP_HOME")
    installed = shutil.which("hadoop", path=str(Path(home) / "bin")) if home else None
    return installed or shutil.which("hadoop", path=environment.get("PATH", os.defpath))


def _classpath_of(command: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    arguments = [command, "classpath", "--glob"]
    try:
        done = subprocess.run(
            arguments, env=dict(environment), capture_output=True, text=True, timeout=_CLASSPATH_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HadoopMissingError("the command does not run", value=" ".join(arguments), remedy=str(error)) from error
    entries = tuple(entry for entry in done.stdout.strip().split(os.pathsep) if entry)
    if done.returncode != 0 or not entries:
        error_lines = done.stderr.strip().splitlines()
        raise HadoopMissingError(
            "the command gives no class path",
            value=" ".join(arguments),
            remedy=error_lines[-1] if error_lines else "it said nothing",
        )
    return entries


def _name_gpus(configuration: HadoopConfiguration, conf_dir: Path, own_folder: Path, gpu: str) -> None:
    """A client that has no resource type for GPUs cannot even say the word: give it one where the site has not.

    Ours shadows the site's file, so it repeats what stands there.
    """
    site = conf_dir / "resource-types.xml"
    properties = _properties(site) if site.is_file() else {}
    named = properties.get(_RESOURCE_TYPES, configuration.get(_RESOURCE_TYPES))
    names = [name for name in (part.strip() for part in named.split(",")) if name]
    if gpu in names:
        return
    properties[_RESOURCE_TYPES] = ",".join([*names, gpu])
    root = ElementTree.Element("configuration")
    for name, value in properties.items():
        element = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(element, "name").text = name
        ElementTree.SubElement(element, "value").text = value
    ElementTree.ElementTree(root).write(own_folder / site.name, encoding="utf-8", xml_declaration=True)


def _properties(path: Path) -> dict[str, str]:
    configuration = HadoopConfiguration.read(path)
    return {name: configuration.get(name) for name in configuration.names()}
