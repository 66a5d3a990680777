"""Where classes and configuration come from; no Java runs here."""

import os
from pathlib import Path

import pytest

from themis.hadoop.class_path import client_class_path, configuration_folder, named_jar_folder
from themis.hadoop.configuration import HadoopConfiguration
from themis.hadoop.errors import HadoopConfigurationError, HadoopMissingError
from themis.hadoop.jvm import handed_on, jvm_options

NAMES_GPUS = "<configuration><property><name>yarn.resource-types</name><value>{}</value></property></configuration>"


@pytest.fixture
def conf_dir(tmp_path):
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "yarn-site.xml").write_text("<configuration/>")
    return folder


@pytest.fixture
def own_folder(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


@pytest.fixture
def jars(tmp_path):
    folder = tmp_path / "lib"
    folder.mkdir()
    for name in ("hadoop-yarn-client-3.4.2.jar", "a.jar", "notes.txt"):
        (folder / name).touch()
    return folder


def hadoop_command(folder, script):
    """An installed Hadoop's folder, with that command."""
    (folder / "bin").mkdir(parents=True)
    command = folder / "bin" / "hadoop"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return folder


def test_the_configuration_folder_is_the_first_that_is_named(tmp_path, conf_dir):
    installed = tmp_path / "hadoop"
    (installed / "etc" / "hadoop").mkdir(parents=True)
    environment = {"HADOOP_HOME": str(installed)}
    assert configuration_folder(environment) == installed / "etc" / "hadoop"
    environment["YARN_CONF_DIR"] = str(tmp_path)
    assert configuration_folder(environment) == tmp_path
    environment["HADOOP_CONF_DIR"] = str(conf_dir)
    assert configuration_folder(environment) == conf_dir


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "no configuration of a Hadoop cluster; set HADOOP_CONF_DIR"),
        ({"HADOOP_HOME": "/no/such"}, "no configuration of a Hadoop cluster"),
        ({"HADOOP_CONF_DIR": "/no/such"}, "HADOOP_CONF_DIR is no folder: '/no/such'"),
        ({"YARN_CONF_DIR": "/no/such"}, "YARN_CONF_DIR is no folder"),
    ],
)
def test_no_configuration_folder(environment, message):
    with pytest.raises(HadoopConfigurationError, match=message):
        configuration_folder(environment)


def test_jars_of_a_folder(conf_dir, own_folder, jars, tmp_path):
    """Which comes before an installed Hadoop."""
    home = hadoop_command(tmp_path / "hadoop", "echo /installed.jar")
    environment = {"HADOOP_CONF_DIR": str(conf_dir), "THEMIS_HADOOP_JARS": str(jars), "HADOOP_HOME": str(home)}
    assert client_class_path(environment, own_folder) == (
        *(str(own_folder), str(conf_dir)),
        *(str(jars / "a.jar"), str(jars / "hadoop-yarn-client-3.4.2.jar")),
    )


@pytest.mark.parametrize("how", ["home", "path"])
def test_jars_of_an_installed_hadoop(conf_dir, own_folder, tmp_path, how):
    script = 'test "$1 $2" = "classpath --glob" && echo "$HADOOP_CONF_DIR:/x/a.jar::/x/b.jar"'
    home = hadoop_command(tmp_path / "hadoop", script)
    where = {"HADOOP_HOME": str(home)} if how == "home" else {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    environment = {"HADOOP_CONF_DIR": str(conf_dir), **where}
    paths = (str(own_folder), str(conf_dir), str(conf_dir), "/x/a.jar", "/x/b.jar")
    assert client_class_path(environment, own_folder) == paths
    assert named_jar_folder(environment) is None


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo JAVA_HOME is not set >&2; exit 1", "gives no class path: '.*hadoop classpath --glob'; JAVA_HOME is not"),
        ("true", "gives no class path: .*; it said nothing"),
    ],
)
def test_an_installed_hadoop_that_does_not_work(conf_dir, own_folder, tmp_path, script, message):
    environment = {"HADOOP_CONF_DIR": str(conf_dir), "HADOOP_HOME": str(hadoop_command(tmp_path / "hadoop", script))}
    with pytest.raises(HadoopMissingError, match=message):
        client_class_path(environment, own_folder)


def test_a_hadoop_command_that_cannot_run(conf_dir, own_folder, tmp_path):
    home = hadoop_command(tmp_path / "hadoop", "")
    (home / "bin" / "hadoop").write_text("#!/no/such/shell\n")
    environment = {"HADOOP_CONF_DIR": str(conf_dir), "HADOOP_HOME": str(home)}
    with pytest.raises(HadoopMissingError, match="the command does not run"):
        client_class_path(environment, own_folder)


def test_a_folder_without_yarns_client(conf_dir, own_folder, jars):
    (jars / "hadoop-yarn-client-3.4.2.jar").unlink()
    environment = {"HADOOP_CONF_DIR": str(conf_dir), "THEMIS_HADOOP_JARS": str(jars)}
    with pytest.raises(HadoopMissingError, match=r"no jar of YARN's client.*set THEMIS_HADOOP_JARS"):
        client_class_path(environment, own_folder)


@pytest.mark.parametrize("where", ["resource-types.xml", "yarn-site.xml"])
def test_a_site_that_names_gpus_is_left_alone(conf_dir, own_folder, jars, where):
    (conf_dir / where).write_text(NAMES_GPUS.format("yarn.io/fpga, yarn.io/gpu"))
    client_class_path({"HADOOP_CONF_DIR": str(conf_dir), "THEMIS_HADOOP_JARS": str(jars)}, own_folder)
    assert [path.name for path in own_folder.iterdir()] == ["log4j.properties"]


@pytest.mark.parametrize(("site", "named"), [(None, "yarn.io/gpu"), ("yarn.io/fpga", "yarn.io/fpga,yarn.io/gpu")])
def test_gpus_are_added_to_the_resource_types_of_a_site(conf_dir, own_folder, jars, site, named):
    if site:
        text = NAMES_GPUS.format(site)
        extra = "<property><name>yarn.resource-types.yarn.io/fpga.units</name><value>k</value></property>"
        (conf_dir / "resource-types.xml").write_text(text.replace("</configuration>", f"{extra}</configuration>"))
    client_class_path({"HADOOP_CONF_DIR": str(conf_dir), "THEMIS_HADOOP_JARS": str(jars)}, own_folder)
    ours = HadoopConfiguration.read(own_folder / "resource-types.xml")
    assert ours.get("yarn.resource-types") == named
    assert ours.get("yarn.resource-types.yarn.io/fpga.units") == ("k" if site else "")


def test_gpus_of_another_name_are_added_by_that_name(conf_dir, own_folder, jars):
    (conf_dir / "resource-types.xml").write_text(NAMES_GPUS.format("yarn.io/gpu"))
    environment = {"HADOOP_CONF_DIR": str(conf_dir), "THEMIS_HADOOP_JARS": str(jars)}
    client_class_path({**environment, "THEMIS_HADOOP_GPU_RESOURCE": "nvidia.com/a100"}, own_folder)
    ours = HadoopConfiguration.read(own_folder / "resource-types.xml")
    assert ours.get("yarn.resource-types") == "yarn.io/gpu,nvidia.com/a100"


def test_options_of_the_jvm(conf_dir):
    environment = {
        "HADOOP_CONF_DIR": str(conf_dir),
        "HADOOP_USER_NAME": "alice",
        "THEMIS_HADOOP_JVM_OPTIONS": "-Xmx512m '-Dx=a b'",
    }
    options = jvm_options(environment, Path("/own"))
    assert "-Xrs" in options
    assert "-DHADOOP_USER_NAME=alice" in options
    assert "-Dlog4j.configuration=file:/own/log4j.properties" in options
    assert options[-2:] == ("-Xmx512m", "-Dx=a b")
    assert not any(option.startswith("-Djdk.net.hosts.file") for option in options)
    (conf_dir / "hosts").touch()
    assert f"-Djdk.net.hosts.file={conf_dir}/hosts" in jvm_options(environment, Path("/own"))
    environment["THEMIS_HADOOP_HOSTS_FILE"] = __file__
    assert f"-Djdk.net.hosts.file={__file__}" in jvm_options(environment, Path("/own"))


def test_a_submission_passes_on_its_hadoop_variables(jars):
    environment = {"HADOOP_CONF_DIR": "/conf", "JAVA_HOME": "", "HADOOP_USER_NAME": "alice", "SECRET": "x"}
    assert handed_on({**environment, "THEMIS_HADOOP_JARS": str(jars)}) == {
        "HADOOP_CONF_DIR": "/conf",
        "THEMIS_HADOOP_JARS": str(jars),
    }


def test_jars_found_by_default_are_named_to_a_container(monkeypatch, tmp_path):
    """Whose home folder is another."""
    monkeypatch.setattr("themis.hadoop.class_path.jar_folder", lambda: tmp_path)
    assert handed_on({"PATH": "/no/such"}) == {"THEMIS_HADOOP_JARS": str(tmp_path)}
