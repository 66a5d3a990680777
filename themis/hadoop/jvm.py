"""The JVM inside this process that runs Hadoop's clients.

One process has one JVM, and it is never started again: settings are those of the first `start_jvm`. All calls into Java
release Python's lock, and any thread may make them. Python keeps its signals (-Xrs).

What the environment of a process that calls YARN must hold, the app master's in its container included:

| variable | what | when |
|---|---|---|
| HADOOP_CONF_DIR | folder of core-site.xml and yarn-site.xml | always; NodeManagers hand on their own |
| JAVA_HOME | Java 11 or later | where `java` is not on the PATH; NodeManagers hand on their own |
| HADOOP_HOME, or `hadoop` on the PATH | an installed Hadoop, for the jars | or the next |
| THEMIS_HADOOP_JARS | a folder with the jars of Hadoop's clients | where no Hadoop is installed |
| THEMIS_HADOOP_HOSTS_FILE | names for addresses, as in /etc/hosts | only to run a cluster without DNS on one machine |
| THEMIS_HADOOP_JVM_OPTIONS | more options, quoted as for a shell, after ours | to override, such as `-Xmx512m` |
| THEMIS_HADOOP_GPU_RESOURCE | YARN's resource for GPUs | where it is not `yarn.io/gpu` |
| THEMIS_HADOOP_KEYTAB, THEMIS_HADOOP_PRINCIPAL | see `themis.hadoop.security` | with Kerberos, to submit |
| HADOOP_TOKEN_FILE_LOCATION | credentials | set by NodeManagers in every container |
| HADOOP_USER_NAME | who we are where security is off | else the process's user |

A JVM that refuses the value of an option, for example too small a heap, prints a message and ends the process, which
no code can catch. An app master also needs PYTHONPATH, which NodeManagers do not pass on. `handed_on` selects the
variables that a submission must repeat in its launch environment.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

import jpype

from themis.hadoop.class_path import client_class_path, configuration_folder, named_jar_folder
from themis.hadoop.errors import HadoopMissingError, JvmError
from themis.hadoop.jars import JARS_VARIABLE

HOSTS_VARIABLE = "THEMIS_HADOOP_HOSTS_FILE"
OPTIONS_VARIABLE = "THEMIS_HADOOP_JVM_OPTIONS"
# Hadoop looks for these among the JVM's properties first, then in the environment that the process began with.
_AS_PROPERTIES = ("HADOOP_USER_NAME", "HADOOP_PROXY_USER", "HADOOP_TOKEN_FILE_LOCATION")
_HANDED_ON = ("HADOOP_CONF_DIR", "JAVA_HOME", "HADOOP_HOME", JARS_VARIABLE, HOSTS_VARIABLE, OPTIONS_VARIABLE)
_LIBJVM = ("lib/server/libjvm.so", "jre/lib/amd64/server/libjvm.so", "lib/server/libjvm.dylib")

_starting = threading.Lock()
_started_for: dict[str, str] = {}


def handed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Of the variables above, those that lead to configuration and jars.

    For an app master's launch where every machine has the same folders; a site whose NodeManagers know their own
    (`yarn.nodemanager.env-whitelist`) needs none of them: `yarn.same_paths` says so. Jars found by default are named,
    as a container has another home folder. Raises HadoopMissingError where there are none.
    """
    folder = named_jar_folder(environment)
    jars = {JARS_VARIABLE: str(folder)} if folder else {}
    return {name: environment[name] for name in _HANDED_ON if environment.get(name)} | jars


def start_jvm(environment: Mapping[str, str] | None = None) -> None:
    """Start the JVM, once; later calls for the same cluster do nothing. Takes about half a second.

    Args:
        environment: See the table above. None: this process's, or whatever the JVM was started with.

    Raises:
        HadoopConfigurationError: No usable configuration.
        HadoopMissingError: No jars or no Java.
        JvmError: It does not start, or it runs already with another configuration folder.
    """
    with _starting:
        if environment is None and _started_for:
            return
        values = dict(os.environ if environment is None else environment)
        conf_dir = str(configuration_folder(values).resolve())
        if jpype.isJVMStarted():
            _refuse_another(conf_dir)
            return
        # Needed for the start only, and gone after it: an app master that is killed leaves nothing behind.
        with tempfile.TemporaryDirectory(prefix="themis-hadoop-") as folder:
            own_folder = Path(folder)
            class_path = client_class_path(values, own_folder)
            _start(_libjvm(values), jvm_options(values, own_folder), class_path)
        _started_for["conf_dir"] = conf_dir


def jvm_options(environment: Mapping[str, str], own_folder: Path) -> tuple[str, ...]:
    """Options of the JVM: small, quick to start, and without signal handlers of its own."""
    options = [
        "-Xrs",
        "-Xmx96m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.awt.headless=true",
        # Hadoop 3.4 looks into java.lang; 3.5 does not.
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        f"-Dlog4j.configuration=file:{own_folder}/log4j.properties",
    ]
    if hosts := _hosts_file(environment):
        options.append(f"-Djdk.net.hosts.file={hosts}")
    options += [f"-D{name}={environment[name]}" for name in _AS_PROPERTIES if environment.get(name)]
    return (*options, *_extra_options(environment))


def _extra_options(environment: Mapping[str, str]) -> list[str]:
    text = environment.get(OPTIONS_VARIABLE, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise JvmError(f"{OPTIONS_VARIABLE} is not quoted as for a shell", value=text, remedy=str(error)) from error


def _hosts_file(environment: Mapping[str, str]) -> Path | None:
    if given := environment.get(HOSTS_VARIABLE):
        if not Path(given).is_file():
            # Java would take it for an empty one, and know no host at all.
            raise JvmError(f"{HOSTS_VARIABLE} is no file", value=given)
        return Path(given)
    beside = configuration_folder(environment) / "hosts"
    return beside if beside.is_file() else None


def _libjvm(environment: Mapping[str, str]) -> str:
    remedy = "install Java 11 or later, and set JAVA_HOME to its folder"
    if home := environment.get("JAVA_HOME"):
        found = next((path for path in (Path(home) / part for part in _LIBJVM) if path.is_file()), None)
        if found is None:
            raise HadoopMissingError("JAVA_HOME holds no Java", value=home, remedy=remedy)
        return str(found)
    try:
        return str(jpype.getDefaultJVMPath())
    except (jpype.JVMNotFoundException, jpype.JVMNotSupportedException) as error:
        raise HadoopMissingError("Hadoop's clients need Java, and there is none", remedy=remedy) from error


def _refuse_another(conf_dir: str) -> None:
    before = _started_for.get("conf_dir")
    if before is None:
        raise JvmError("another part of this process started a JVM that does not know Hadoop")
    if before != conf_dir:
        raise JvmError(
            "this process's JVM serves another cluster already",
            value=conf_dir,
            remedy=f"it was started for {before}; a process has one JVM: use another process",
        )


def _start(libjvm: str, options: tuple[str, ...], class_path: tuple[str, ...]) -> None:
    try:
        # Java strings stay Java's until asked for: each crossing of the border is written out.
        jpype.startJVM(libjvm, *options, classpath=list(class_path), convertStrings=False)
    except (OSError, RuntimeError, ValueError, jpype.JVMNotFoundException) as error:
        raise JvmError(
            "the JVM does not start", value=libjvm, remedy=f"{error}; options: {shlex.join(options)}"
        ) from error
    try:
        jpype.JClass("org.apache.hadoop.yarn.client.api.YarnClient")
        # Reads resource types and log settings, each once in a JVM's life.
        jpype.JClass("org.apache.hadoop.yarn.util.resource.ResourceUtils").getResourceTypes()
    except TypeError as error:
        raise HadoopMissingError(
            "the class path lacks YARN's client",
            value=os.pathsep.join(class_path[2:]),
            remedy=f"set {JARS_VARIABLE} to a folder that has Hadoop's jars, or HADOOP_HOME to an installed Hadoop",
        ) from error
