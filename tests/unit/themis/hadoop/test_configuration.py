"""Hadoop's site files, read without Java."""

import pytest

from themis.hadoop.configuration import HadoopConfiguration
from themis.hadoop.errors import HadoopConfigurationError


def written(path, *properties, extra=""):
    lines = [
        f"<property><name>{name}</name><value>{value}</value>{rest}</property>"
        for name, value, rest in ((*entry, "")[:3] for entry in properties)
    ]
    path.write_text(
        f'<?xml version="1.0"?>\n<!-- a comment -->\n<configuration xmlns:xi="http://www.w3.org/2001/XInclude">'
        f"{''.join(lines)}{extra}</configuration>"
    )
    return path


def one(tmp_path, value, environment=None, **others):
    written(tmp_path / "core-site.xml", ("it", value), *others.items())
    return HadoopConfiguration.load(tmp_path, environment or {}).get("it")


def test_values_and_defaults(tmp_path):
    written(tmp_path / "core-site.xml", ("fs.defaultFS", " hdfs://nn:8020\n"), ("empty", ""))
    configuration = HadoopConfiguration.load(tmp_path)
    assert configuration.get("fs.defaultFS", "file:///") == "hdfs://nn:8020"
    assert configuration.get("absent", "4") == "4"
    assert configuration.get("absent") == ""
    assert configuration.get("empty", "default") == ""
    assert ("empty" in configuration, "absent" in configuration) == (True, False)
    assert configuration.names() == ("empty", "fs.defaultFS")
    assert configuration.conf_dir == tmp_path


def test_later_files_override_but_for_final_properties(tmp_path):
    """core, hdfs, mapred, yarn, then the rest by name."""
    written(tmp_path / "yarn-site.xml", ("a", "yarn"), ("b", "yarn"), ("c", "yarn"))
    written(tmp_path / "core-site.xml", ("a", "core"), ("b", "core", "<final>true</final>"), ("d", "core"))
    written(tmp_path / "hbase-site.xml", ("c", "hbase"), ("d", "hbase"))
    written(tmp_path / "resource-types.xml", ("a", "no site file"))
    configuration = HadoopConfiguration.load(tmp_path)
    assert [configuration.get(name) for name in "abcd"] == ["yarn", "core", "hbase", "hbase"]


def test_properties_as_attributes(tmp_path):
    written(tmp_path / "core-site.xml", extra='<property name="a" value="1" final="true"/><property name="b"/>')
    configuration = HadoopConfiguration.load(tmp_path)
    assert (configuration.get("a"), "b" in configuration) == ("1", False)


@pytest.mark.parametrize(
    ("value", "environment", "others", "replaced"),
    [
        ("${a}/x/${b}", {}, {"a": "1", "b": "2"}, "1/x/2"),
        ("${a}", {}, {"a": "<${b}>".replace("<", "[").replace(">", "]"), "b": "2"}, "[2]"),
        ("${${a}}", {}, {"a": "b", "b": "2"}, "2"),
        ("${absent}/${a}", {}, {"a": "1"}, "${absent}/1"),
        ("${it}", {}, {}, "${it}"),
        ("${a}", {}, {"a": "${b}", "b": "${a}"}, "${a}"),
        ("/home/${user.name}", {"HADOOP_USER_NAME": "alice"}, {}, "/home/alice"),
        ("${user.home}/x", {"HOME": "/root"}, {}, "/root/x"),
        ("${env.PORT}", {"PORT": "80"}, {}, "80"),
        ("${env.PORT}", {}, {}, "${env.PORT}"),
        ("${env.PORT-81}", {}, {}, "81"),
        ("${env.PORT-81}", {"PORT": ""}, {}, ""),
        ("${env.PORT:-81}", {"PORT": ""}, {}, "81"),
        ("${env.PORT:-81}", {"PORT": "80"}, {}, "80"),
        ("$a and $ {a}", {}, {"a": "1"}, "$a and $ {a}"),
    ],
)
def test_variables(tmp_path, value, environment, others, replaced):
    assert one(tmp_path, value, environment, **others) == replaced


def test_included_files(tmp_path):
    (tmp_path / "shared").mkdir()
    written(tmp_path / "shared" / "all.xml", ("a", "1"), ("b", "1"))
    written(
        tmp_path / "core-site.xml",
        extra='<xi:include href="shared/all.xml"/><property><name>b</name><value>2</value></property>'
        '<xi:include href="absent.xml"><xi:fallback><property><name>c</name><value>3</value></property></xi:fallback>'
        "</xi:include>",
    )
    configuration = HadoopConfiguration.load(tmp_path)
    assert [configuration.get(name) for name in "abc"] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<configuration>", "is not XML"),
        ("<settings/>", "must begin with <configuration>.*it has <settings>"),
        ("<configuration><property><value>1</value></property></configuration>", "a property without a name"),
        (
            '<configuration><include xmlns="http://www.w3.org/2001/XInclude" href="no.xml"/></configuration>',
            "cannot be read.*no.xml.*No such file",
        ),
        (
            '<configuration><include xmlns="http://www.w3.org/2001/XInclude" href="core-site.xml"/></configuration>',
            "include each other.*core-site.xml",
        ),
    ],
)
def test_files_that_are_no_configuration(tmp_path, content, message):
    (tmp_path / "core-site.xml").write_text(content)
    with pytest.raises(HadoopConfigurationError, match=message):
        HadoopConfiguration.load(tmp_path)


def test_a_folder_without_configuration(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(HadoopConfigurationError, match=r"no Hadoop configuration in this folder.*HADOOP_CONF_DIR"):
            HadoopConfiguration.load(folder)
