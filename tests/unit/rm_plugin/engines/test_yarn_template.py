"""The environment of app masters on YARN: the paths on their nodes."""

import json

import pytest

from rm_plugin.engines.yarn import YarnEngine
from themis.config.rm_settings import RmSettings

OURS = ("HADOOP_CONF_DIR", "JAVA_HOME", "THEMIS_HADOOP_JARS")


@pytest.fixture
def template(tmp_path, monkeypatch):
    """Return the template for settings. This machine has its own Hadoop folders."""
    for name in OURS:
        monkeypatch.setenv(name, str(tmp_path / name))

    def make(**yarn):
        settings = RmSettings.model_validate(
            {"cluster": None, "state_dir": tmp_path, "engine": "yarn", "yarn": {"storage": "hdfs:///t", **yarn}}
        )
        return YarnEngine(settings, None)._template("run")

    return make


def reported(template):
    return json.loads(template.environment["THEMIS_ENGINE_SETTINGS"])


def test_nodes_with_same_paths_get_this_machines_folders(template, tmp_path):
    made = template()
    for name in OURS:
        assert made.environment[name] == reported(made)["environment"][name] == str(tmp_path / name)


def test_other_nodes_use_own_folders_except_those_in_settings(template):
    made = template(same_paths=False, environment={"JAVA_HOME": "/usr/lib/jvm/java-17"})
    assert not {"HADOOP_CONF_DIR", "THEMIS_HADOOP_JARS"} & made.environment.keys()
    assert made.environment["JAVA_HOME"] == reported(made)["environment"]["JAVA_HOME"] == "/usr/lib/jvm/java-17"


def test_app_masters_learn_the_name_of_yarns_gpu_resource(template):
    assert template(gpu_resource="nvidia.com/a100").environment["THEMIS_HADOOP_GPU_RESOURCE"] == "nvidia.com/a100"
    assert "THEMIS_HADOOP_GPU_RESOURCE" not in template().environment


def test_gpu_plugin_sets_card_numbering(template):
    assert reported(template())["gpu_plugin"] is False
    assert reported(template(gpu_plugin=True))["gpu_plugin"] is True
