"""Other people's clients: what `yarn-api-client` from PyPI sees of an app of Themis."""

import getpass

import pytest
from themis_on_yarn import ThemisOnYarn
from yarn_api_client import ResourceManager


@pytest.fixture(scope="module")
def themis(cluster, tmp_path_factory):
    with ThemisOnYarn(cluster, tmp_path_factory.mktemp("themis")) as themis:
        yield themis


@pytest.fixture
def client(cluster):
    return ResourceManager(service_endpoints=[cluster.rm_web])


def seen(client, **filters):
    return (client.cluster_applications(**filters).data["apps"] or {}).get("app", [])


def test_an_app_from_its_start_to_its_end(themis, client):
    app_id = themis.submit(name="for-others", job={"tasks": 1, "gpus_per_task": 1, "iterations": 160})
    themis.wait_until_iterating(app_id, 60)
    yarn_app_id = themis.app(app_id).engine_id
    (app,) = [app for app in seen(client, application_types=["THEMIS"], states=["RUNNING"]) if app["id"] == yarn_app_id]
    assert (app["name"], app["applicationType"], app["finalStatus"]) == ("for-others", "THEMIS", "UNDEFINED")
    assert {f"themis-app:{app_id}", f"user:{getpass.getuser()}"} <= set(app["applicationTags"].split(","))
    assert 0 < app["progress"] < 100 and app["runningContainers"] == 3
    held = {
        part["name"]: part["value"]
        for part in app["resourceInfo"]["resourceUsagesByPartition"][0]["used"]["resourceInformations"][
            "resourceInformation"
        ]
    }
    assert held["yarn.io/gpu"] == 2
    attempts = client.cluster_application_attempts(yarn_app_id).data["appAttempts"]["appAttempt"]
    assert len(attempts) == 1
    assert themis.wait_until_ended(app_id).state == "FINISHED"
    themis.until(
        lambda: client.cluster_application_state(yarn_app_id).data["state"] == "FINISHED", "it is over for YARN"
    )
    over = client.cluster_application(yarn_app_id).data["app"]
    assert (over["finalStatus"], over["progress"]) == ("SUCCEEDED", 100.0)
    print(
        {
            key: over[key]
            for key in ("id", "name", "state", "finalStatus", "applicationType", "applicationTags", "progress")
        }
    )


def test_an_app_that_the_client_kills(themis, client):
    app_id = themis.submit(name="killed-by-others", job={"tasks": 1, "gpus_per_task": 1, "iterations": 100_000})
    themis.wait_until_iterating(app_id, 20)
    client.cluster_application_kill(themis.app(app_id).engine_id)
    assert themis.wait_until_ended(app_id).state == "KILLED"


def test_the_cluster(themis, client):
    nodes = client.cluster_nodes().data["nodes"]["node"]
    assert sorted(node["nodeHostName"] for node in nodes) == sorted(themis.cluster.node_gpus)
    assert client.cluster_metrics().data["clusterMetrics"]["activeNodes"] == 3
