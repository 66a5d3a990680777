"""From HDFS URIs and Hadoop's configuration to NameNodes and paths."""

import pytest

from themis.errors import InputError
from themis.hadoop.configuration import HadoopConfiguration
from themis.hadoop.errors import HadoopConfigurationError
from themis.hadoop.webhdfs_address import configuration_of, resolve, user_name

PLAIN = {"fs.defaultFS": "hdfs://nn:8020", "dfs.namenode.http-address": "nn:50070"}
HA = {
    "fs.defaultFS": "hdfs://ns",
    "dfs.nameservices": "ns, other",
    "dfs.ha.namenodes.ns": "a,b",
    "dfs.namenode.http-address.ns.a": "one:1",
    "dfs.namenode.rpc-address.ns.b": "two:8020",
    "dfs.namenode.rpc-address.other": "three:8020",
    "dfs.namenode.http-address.other": "0.0.0.0:5",
}


@pytest.mark.parametrize(
    ("properties", "uri", "urls", "path"),
    [
        ({}, "webhdfs://h:1/a/b/", ["http://h:1"], "/a/b"),
        ({}, "WEBHDFS://h/a", ["http://h:9870"], "/a"),
        ({}, "hdfs://h:8020//a//b", ["http://h:9870"], "/a/b"),
        (PLAIN, "hdfs:///a", ["http://nn:50070"], "/a"),
        (PLAIN, "hdfs://nn:8020/a", ["http://nn:50070"], "/a"),
        (PLAIN, "hdfs://nn/a", ["http://nn:50070"], "/a"),
        (PLAIN, "hdfs://elsewhere:8020/a", ["http://elsewhere:9870"], "/a"),
        ({**PLAIN, "dfs.namenode.http-address": "0.0.0.0:7"}, "hdfs:///a", ["http://nn:7"], "/a"),
        (HA, "hdfs:///a", ["http://one:1", "http://two:9870"], "/a"),
        (HA, "hdfs://ns/a", ["http://one:1", "http://two:9870"], "/a"),
        (HA, "hdfs://other/a", ["http://three:5"], "/a"),
    ],
)
def test_places(properties, uri, urls, path):
    place = resolve(uri, HadoopConfiguration(properties))
    assert (list(place.urls), place.path) == (urls, path)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("hdfs://h:8020", "not an HDFS URI"),
        ("hdfs://h:8020/", "unusable path"),
        ("hdfs://h:8020/a/../b", "unusable path"),
        ("hdfs://h:8020/a/#LATEST", "unusable path"),
        ("hdfs://h:80x0/a", "no such port"),
        ("webhdfs://h:70000/a", "no such port"),
        ("webhdfs:///a", "must name the NameNode"),
        ("s3://h/a", "not an HDFS URI"),
        ("hdfs:///a", "fs.defaultFS"),
    ],
)
def test_malformed_uris_are_refused_with_a_reason(uri, reason):
    with pytest.raises(InputError, match=reason):
        resolve(uri, HadoopConfiguration({}))


def test_a_nameservice_without_addresses_names_the_property():
    configuration = HadoopConfiguration({"dfs.nameservices": "ns", "dfs.ha.namenodes.ns": "a"})
    with pytest.raises(HadoopConfigurationError, match=r"dfs\.namenode\.http-address\.ns\.a"):
        resolve("hdfs://ns/a", configuration)


def test_the_environment_gives_user_and_address(tmp_path):
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://h:1</value></property></configuration>"
    )
    assert configuration_of({"HADOOP_CONF_DIR": str(tmp_path)}).get("fs.defaultFS") == "hdfs://h:1"
    assert configuration_of({}).names() == ()
    assert user_name({"HADOOP_USER_NAME": "alice"}) == "alice"
    assert user_name({})


@pytest.mark.parametrize(
    ("uri", "file_system"),
    [("hdfs:///a", "hdfs://ns"), ("hdfs://other/a", "hdfs://other"), ("webhdfs://h:1/a", "webhdfs://h:1")],
)
def test_file_systems_as_hadoop_names_them(uri, file_system):
    assert resolve(uri, HadoopConfiguration(HA)).file_system == file_system
