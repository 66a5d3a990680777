"""What app masters on YARN are told of where things lie on their nodes."""

import json

import pytest

from rm_plugin.engines.yarn import YarnEngine
from themis.config.rm_settings import RmSettings

OURS = ("HADOOP_CONF_DIR", "JAVA_HOME", "THEMIS_HADOOP_JARS")


@pytest.fixture
def template(tmp_path, monkeypatch):
    """The template by settings; this machine has Hadoop's things in folders of its own."""
    for name in OURS:
        monkeypatch.setenv(name, str(tmp_path / name))

    def make(**yarn):
        settings = RmSettings.model_validate(
            {"cluster": None, "state_dir": tmp_path, "engine": "yarn", "yarn": {"storage": "hdfs:///t", **yarn}}
        )
        return YarnEngine(settings, None)._template("run")

    return make


def told(template):
    return json.loads(template.environment["THEMIS_ENGINE_SETTINGS"])


def test_nodes_laid_out_alike_are_told_this_machine_s_folders(template, tmp_path):
    made = template()
    for name in OURS:
        assert made.environment[name] == told(made)["environment"][name] == str(tmp_path / name)


def test_others_find_their_own_but_for_what_the_settings_name(template):
    made = template(same_paths=False, environment={"JAVA_HOME": "/usr/lib/jvm/java-17"})
    assert not {"HADOOP_CONF_DIR", "THEMIS_HADOOP_JARS"} & made.environment.keys()
    assert made.environment["JAVA_HOME"] == told(made)["environment"]["JAVA_HOME"] == "/usr/lib/jvm/java-17"


def test_whether_the_plugin_shows_the_cards(template):
    assert told(template())["gpu_plugin"] is False
    assert told(template(gpu_plugin=True))["gpu_plugin"] is True
